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

// MemoryOptions configure a sensor of [NewMemory]. The zero MemoryOptions consist of default values.
type MemoryOptions struct {
	// Interval is the least time between two readings. If Interval is 0, it is 100 ms. It is at
	// least 1 ms. The control group's limit is read every 2 s.
	Interval time.Duration
}

// A MemorySample is how near the process is to its memory limit, as published by the Sensor of
// [NewMemory].
type MemorySample struct {
	// Used is what the Go runtime has from the system and has not given back, in bytes; Live is what of it the garbage
	// collector cannot free, as of the last collection. Neither contains what C code or mapped files take.
	Used, Live uint64
	// Limit is the less of GOMEMLIMIT and the least limit among the control group and those above it, in bytes.
	Limit uint64
	// Soft says that Limit is GOMEMLIMIT. The collector lets garbage fill the memory up to it on purpose, so only Live
	// counts; at a control group's limit the process is killed, so Used does.
	Soft bool
	// Share is what counts as a share of Limit. It may be above 1.
	Share float64
	// Time is when that was read.
	Time time.Time
	// Err says why the share is unknown now: ErrNoReading, ErrNoMemoryLimit, or what failed. The other fields then are
	// those of Time.
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

// noMemoryLimit is at and above what stands for no limit: math.MaxInt64 in Go, and that without its last page in Linux.
const noMemoryLimit = math.MaxInt64 / 2

// NewMemory returns a Sensor of how near the memory of this process is to its limit, with the options, the defaults if o is nil. It
// reads nothing yet.
func NewMemory(o *MemoryOptions) (*Sensor[MemorySample], error) {
	if o == nil {
		o = &MemoryOptions{}
	}
	return newMemory(o.Interval, os.DirFS("/"), runtimeMemory())
}

func newMemory(interval time.Duration, fsys fs.FS, read func() (heldMemory, error)) (*Sensor[MemorySample], error) {
	return newSensor("Memory", interval, 100*time.Millisecond, MemorySample{Err: ErrNoReading}, newMemoryMeter(fsys, read).take)
}

func newMemoryMeter(fsys fs.FS, read func() (heldMemory, error)) *memoryMeter {
	return &memoryMeter{read: read, fsys: fsys, groups: cgroup.NewFolders(fsys, "memory")}
}

// heldMemory is what the Go runtime says of its memory, in bytes.
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
	if age := now.Sub(m.checked); m.checked.IsZero() || age < 0 || age >= limitsInterval {
		m.checked = now
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
	// All but the heap counts as it is; of the heap what the last collection has found alive, as far as it is still there.
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
			continue // the root has none, and what may not be read sets none
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
