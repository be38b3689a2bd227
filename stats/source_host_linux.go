package stats

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/spillway-go/spillway/internal/cgroup"
)

// userHZ is the unit of /proc/stat, the same on every architecture of Linux that Go runs on.
const userHZ = 100

func newHostSource(fsys fs.FS) *hostSource { return &hostSource{fsys: fsys, clock: time.Now} }

// hostSource reads /proc/stat itself rather than through gopsutil. In every program that imports it, gopsutil reads the
// file twice more in an init function, and each reading takes 11 allocations.
type hostSource struct {
	fsys  fs.FS
	clock func() time.Time // nil: a reading has no time of its own

	mu      sync.Mutex
	cpus    int
	checked time.Time // when cpus was read
	buf     [1024]byte
}

// ReadCPU reads the machine's counters.
func (h *hostSource) ReadCPU(now time.Time) (CPUReading, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if limitsDue(&h.checked, now) || h.cpus == 0 {
		h.cpus = h.online()
	}
	used, err := h.busy()
	if err != nil {
		return CPUReading{}, err
	}
	at := time.Time{}
	if h.clock != nil {
		at = h.clock()
	}
	return busyCPU{used: used, cpus: h.cpus}.reading(at), nil
}

func (h *hostSource) online() int {
	if b, err := fs.ReadFile(h.fsys, "sys/devices/system/cpu/online"); err == nil {
		if n, err := cgroup.ParseCPUList(b); err == nil && n > 0 {
			return n
		}
	}
	return runtime.NumCPU()
}

func (h *hostSource) busy() (time.Duration, error) {
	f, err := h.fsys.Open("proc/stat")
	if err != nil {
		return 0, fmt.Errorf("stats: host: %w", err)
	}
	defer f.Close()
	n, err := io.ReadAtLeast(f, h.buf[:], len("cpu  "))
	if err != nil {
		return 0, fmt.Errorf("stats: host: %w", err)
	}
	line, _, _ := bytes.Cut(h.buf[:n], []byte{'\n'})
	return parseProcStat(line)
}

// parseProcStat sums the busy time of the first line of /proc/stat: all times but idle and iowait, and without the
// guests' time, which user already contains. Each of these only grows, unlike iowait.
func parseProcStat(line []byte) (time.Duration, error) {
	fields := bytes.Fields(line)
	if len(fields) < 5 || string(fields[0]) != "cpu" {
		return 0, fmt.Errorf("stats: host: /proc/stat line %.40q is malformed", line)
	}
	var sum uint64
	for i, field := range fields[1:min(len(fields), 9)] {
		n, err := strconv.ParseUint(string(field), 10, 53)
		if err != nil {
			return 0, fmt.Errorf("stats: host: /proc/stat line %.40q is malformed", line)
		}
		if idle, iowait := 3, 4; i != idle && i != iowait {
			sum += n
		}
	}
	if sum > uint64(1<<63-1)/uint64(time.Second/userHZ) {
		return 0, fmt.Errorf("stats: host: /proc/stat line %.40q is out of range", line)
	}
	return time.Duration(sum) * (time.Second / userHZ), nil
}
