package stats

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"runtime/metrics"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-go/spillway/internal/cgroup"
)

// ErrNoMemoryLimit is the Err of a MemorySample where neither GOMEMLIMIT nor a control group limits the process.
var ErrNoMemoryLimit = errors.New("stats: Memory: no limit is set")

// A MemorySample says how near the process is to its memory limit, as published by the Sensor of [NewMemory].
type MemorySample struct {
	// Used is the memory that the Go runtime has from the system and has not given back, in bytes. Live is the part of
	// it that the garbage collector cannot free, as of the last collection. Neither includes memory of C code or mapped
	// files.
	Used, Live uint64
	// Limit is the lowest of GOMEMLIMIT and the limits of the control group and its parents, in bytes.
	Limit uint64
	// Soft says that Limit is GOMEMLIMIT. The collector lets garbage fill the memory up to GOMEMLIMIT on purpose, so
	// only Live counts. At a control group's limit the process is killed, so Used counts.
	Soft bool
	// Share is Live or Used, whichever counts, divided by Limit. It may be above 1.
	Share float64
	// Time is when that was read.
	Time time.Time
	// Err says why the share is unknown now: ErrNoReading, ErrNoMemoryLimit, or the failure. The other fields then keep
	// the values of the last reading, at Time.
	Err error
}

func (s MemorySample) figure() (float64, error) { return s.Share, s.Err }

// A memoryMeter measures how near the memory of this process is to its limit.
type memoryMeter struct {
	read    func() (heldMemory, error)
	fsys    fs.FS
	groups  *cgroup.Folders
	group   uint64 // the control groups' limit
	failed  error  // why it could not be read
	checked time.Time
}

// noMemoryLimit is the least value that means no limit: math.MaxInt64 in Go, and in Linux the same rounded down to a
// page.
const noMemoryLimit = math.MaxInt64 / 2

// NewMemory returns a Sensor of how near the memory of this process is to its limit. The interval is the least time
// between two readings, at least 1 ms; if it is 0, it is 100 ms. The control group's limit is read every 2 s. NewMemory reads
// nothing yet.
func NewMemory(interval time.Duration) (*Sensor[MemorySample], error) {
	return newMemory(interval, os.DirFS("/"), runtimeMemory())
}

func newMemory(interval time.Duration, fsys fs.FS, read func() (heldMemory, error)) (*Sensor[MemorySample], error) {
	return newSensor("Memory", interval, 100*time.Millisecond, MemorySample{Err: ErrNoReading}, newMemoryMeter(fsys, read).take)
}

func newMemoryMeter(fsys fs.FS, read func() (heldMemory, error)) *memoryMeter {
	return &memoryMeter{read: read, fsys: fsys, groups: cgroup.NewFolders(fsys, "memory")}
}

// heldMemory holds the Go runtime's figures about its memory, in bytes.
type heldMemory struct{ total, released, objects, unused, free, live, limit uint64 }

// runtimeMemory returns a reader of the Go runtime's metrics that reuses its memory.
func runtimeMemory() func() (heldMemory, error) {
	sample := []metrics.Sample{
		{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/unused:bytes"},
		{Name: "/memory/classes/heap/free:bytes"}, {Name: "/gc/heap/live:bytes"}, {Name: "/gc/gomemlimit:bytes"},
	}
	return func() (m heldMemory, err error) {
		metrics.Read(sample)
		for i, to := range []*uint64{&m.total, &m.released, &m.objects, &m.unused, &m.free, &m.live, &m.limit} {
			if sample[i].Value.Kind() != metrics.KindUint64 {
				return m, fmt.Errorf("stats: Memory: this Go runtime has no %s", sample[i].Name)
			}
			*to = sample[i].Value.Uint64()
		}
		return m, nil
	}
}

func (m *memoryMeter) take(s *MemorySample, now time.Time) time.Time {
	m.measure(s, now)
	return now
}

func (m *memoryMeter) measure(s *MemorySample, now time.Time) {
	if limitsDue(&m.checked, now) {
		m.group, m.failed = m.groupLimit()
	}
	h, err := m.read()
	if err == nil {
		err = m.failed
	}
	if err != nil {
		s.Err = err
		return
	}
	next := MemorySample{Used: h.total - min(h.released, h.total), Limit: h.limit, Soft: true, Time: now}
	// Memory outside the heap counts fully. The heap counts with the live bytes of the last collection, and at most with
	// its present size.
	next.Live = next.Used - min(h.objects+h.unused+h.free, next.Used) + min(h.live, h.objects)
	if m.group < next.Limit {
		next.Limit, next.Soft = m.group, false
	}
	switch {
	case next.Limit >= noMemoryLimit:
		s.Err = ErrNoMemoryLimit
		return
	case next.Soft:
		next.Share = float64(next.Live) / float64(max(next.Limit, 1))
	default:
		next.Share = float64(next.Used) / float64(max(next.Limit, 1))
	}
	*s = next
}

// groupLimit returns the least limit of all control groups, math.MaxUint64 if none has one.
func (m *memoryMeter) groupLimit() (uint64, error) {
	least := uint64(math.MaxUint64)
	version, folders := m.groups.Look()
	name := "memory.max"
	if version == 1 {
		name = "memory.limit_in_bytes"
	}
	for _, folder := range folders {
		b, err := fs.ReadFile(m.fsys, path.Join(folder, name))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
			continue // the root has no limit, and a file that may not be read sets none
		}
		if err != nil {
			return 0, fmt.Errorf("stats: Memory: %w", err)
		}
		text := strings.TrimSpace(string(b))
		if text == "max" {
			continue
		}
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("stats: Memory: %s/%s %.40q is malformed", folder, name, text)
		}
		least = min(least, n)
	}
	return least, nil
}
