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

// MemoryOptions configure a Memory. The zero MemoryOptions consist of default values.
type MemoryOptions struct {
	// Interval is the least time between two readings. If Interval is 0, it is 100 ms. It is at
	// least 1 ms. The control group's limit is read every 2 s.
	Interval time.Duration
}

// A MemorySample is how near the process is to its memory limit, as published by a Memory.
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

// A Memory measures how near the memory of this process is to its limit. It is pulled like a CPU: at most once per interval
// one of those who ask reads; it has no goroutine and needs no Close. All methods may be called concurrently.
type Memory struct {
	sample  *pulled[MemorySample]
	read    func() (heldMemory, error)
	fsys    fs.FS
	groups  *cgroup.Folders
	group   uint64 // the control groups' limit
	failed  error  // why it could not be read
	checked time.Time
}

// noMemoryLimit is at and above what stands for no limit: math.MaxInt64 in Go, and that without its last page in Linux.
const noMemoryLimit = math.MaxInt64 / 2

// NewMemory returns a Memory with the options, the defaults if o is nil. It reads nothing yet.
func NewMemory(o *MemoryOptions) (*Memory, error) {
	if o == nil {
		o = &MemoryOptions{}
	}
	interval, err := intervalOf("Memory", o.Interval, 100*time.Millisecond)
	if err != nil {
		return nil, err
	}
	return newMemory(interval, os.DirFS("/"), runtimeMemory()), nil
}

func newMemory(interval time.Duration, fsys fs.FS, read func() (heldMemory, error)) *Memory {
	return &Memory{
		sample: newPulled(interval, MemorySample{Err: ErrNoReading}), read: read,
		fsys: fsys, groups: cgroup.NewFolders(fsys, "memory"),
	}
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

// Sample returns the memory as of now, and reads it if that is due. Times given to Sample come from one clock, which may
// be simulated.
func (m *Memory) Sample(now time.Time) MemorySample { return *m.sample.get(now, m.refresh) }

// Share returns the memory that counts as a share of the limit, or why it is unknown: a Read for a signal of the shedder.
func (m *Memory) Share(now time.Time) (float64, error) {
	s := m.sample.get(now, m.refresh)
	return s.Share, s.Err
}

func (m *Memory) refresh(s *MemorySample, now time.Time) {
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
func (m *Memory) groupLimit() (uint64, error) {
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
