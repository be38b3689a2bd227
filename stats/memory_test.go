package stats

import (
	"errors"
	"io/fs"
	"math"
	"runtime"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/race"
)

// groupTree makes a tree of files.
func groupTree(files map[string]string) fstest.MapFS {
	fsys := fstest.MapFS{}
	for name, text := range files {
		fsys[name] = &fstest.MapFile{Data: []byte(text + "\n")}
	}
	return fsys
}

const (
	unifiedMount = "31 23 0:28 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate"
	memoryMount  = "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory"
)

func TestMemoryLimitOfControlGroups(t *testing.T) {
	for name, tt := range map[string]struct {
		files map[string]string
		want  uint64
		err   string
	}{
		"none": {files: map[string]string{}, want: math.MaxUint64},
		"v2": {want: 1000, files: map[string]string{
			"proc/self/cgroup": "0::/", "proc/self/mountinfo": unifiedMount, "sys/fs/cgroup/memory.max": "1000",
		}},
		"v2, a tighter parent": {want: 700, files: map[string]string{
			"proc/self/cgroup": "0::/pod/main", "proc/self/mountinfo": unifiedMount,
			"sys/fs/cgroup/pod/main/memory.max": "max", "sys/fs/cgroup/pod/memory.max": "700",
		}},
		"v1, no limit": {want: 9223372036854771712, files: map[string]string{
			"proc/self/cgroup": "4:memory:/\n0::/", "proc/self/mountinfo": memoryMount + "\n" + unifiedMount,
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712", "sys/fs/cgroup/memory.max": "5",
		}},
		"v1, mounted from the container's root": {want: 500, files: map[string]string{
			"proc/self/cgroup":                       "4:cpu,memory:/docker/5f",
			"proc/self/mountinfo":                    `36 35 0:29 /docker/5f /sys/fs/my\040cgroup ro shared:9 - cgroup cgroup rw,cpu,memory`,
			"sys/fs/my cgroup/memory.limit_in_bytes": "500",
		}},
		"hybrid with the controller in v2": {want: 600, files: map[string]string{
			"proc/self/cgroup": "3:cpu:/app\n0::/app", "proc/self/mountinfo": unifiedMount, "sys/fs/cgroup/app/memory.max": "600",
		}},
		"malformed": {err: "memory.max \"lots\" is malformed", files: map[string]string{
			"proc/self/cgroup": "0::/", "proc/self/mountinfo": unifiedMount, "sys/fs/cgroup/memory.max": "lots",
		}},
		"outside of the namespace": {want: math.MaxUint64, files: map[string]string{
			"proc/self/cgroup": "0::/../x", "proc/self/mountinfo": unifiedMount, "sys/fs/cgroup/memory.max": "600",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := newMemoryMeter(groupTree(tt.files), nil).groupLimit()
			if tt.err != "" {
				require.ErrorContains(t, err, tt.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tt.want, got)
		})
	}
}

func TestMemoryCountsLiveAgainstTheSoftLimitAndUsedAgainstTheHard(t *testing.T) {
	fsys := groupTree(map[string]string{
		"proc/self/cgroup": "0::/", "proc/self/mountinfo": unifiedMount, "sys/fs/cgroup/memory.max": "2000",
	})
	held := heldMemory{total: 1100, released: 100, objects: 600, unused: 100, free: 200, live: 400, limit: 1250}
	var failure error
	m, err := newMemory(100*time.Millisecond, fsys, func() (heldMemory, error) { return held, failure })
	require.NoError(t, err)
	now := time.Unix(1e9, 0)
	s := m.Sample(now)
	require.Equal(t, MemorySample{Used: 1000, Live: 500, Limit: 1250, Soft: true, Share: 0.4, Time: now}, s)

	held.limit = math.MaxInt64
	require.Equal(t, s, m.Sample(now.Add(99*time.Millisecond)), "not due")
	now = now.Add(100 * time.Millisecond)
	require.Equal(t, MemorySample{Used: 1000, Live: 500, Limit: 2000, Share: 0.5, Time: now}, m.Sample(now))

	fsys["sys/fs/cgroup/memory.max"].Data = []byte("1000")
	share, err := m.Read(now.Add(time.Second))
	require.NoError(t, err)
	require.InDelta(t, 0.5, share, 0, "limits are read every 2 s")
	share, err = m.Read(now.Add(2 * time.Second))
	require.NoError(t, err)
	require.InDelta(t, 1, share, 0)

	failure = errors.New("gone")
	s = m.Sample(now.Add(4 * time.Second))
	require.ErrorIs(t, s.Err, failure)
	require.InDelta(t, 1, s.Share, 0, "a failure changes nothing else")
	failure = nil
	fsys["sys/fs/cgroup/memory.max"].Data = []byte("max")
	_, err = m.Read(now.Add(8 * time.Second))
	require.ErrorIs(t, err, ErrNoMemoryLimit)
}

func TestMemoryOfThisProcess(t *testing.T) {
	h, err := runtimeMemory()()
	require.NoError(t, err)
	require.Greater(t, h.total, h.objects)
	require.Positive(t, h.limit)
	m, err := NewMemory(0)
	require.NoError(t, err)
	s := m.Sample(time.Now())
	if s.Err == nil {
		require.Positive(t, s.Share)
		require.LessOrEqual(t, s.Live, s.Used)
	}
	_, err = NewMemory(-1)
	require.EqualError(t, err, "stats: Memory: Interval must be at least 1ms, got -1ns")
}

func TestGCShareIsThatOfTheLastCollectionsAndFalls(t *testing.T) {
	var gc, total float64
	var failure error
	g, err := newGC(0, &gcMeter{read: func() (float64, float64, error) { return gc, total, failure }})
	require.NoError(t, err)
	now := time.Unix(1e9, 0)
	step := func(tookSeconds, ofSeconds float64) GCSample {
		now = now.Add(time.Second)
		gc, total = gc+tookSeconds, total+ofSeconds
		return g.Sample(now)
	}
	gc, total = 5, 100
	require.ErrorIs(t, step(0, 0).Err, ErrNoReading)
	s := step(1, 4)
	require.NoError(t, s.Err)
	require.InDelta(t, 0.25, s.CPU, 1e-9)
	require.InDelta(t, 0.25, s.Share, 1e-9, "without Memory")
	procs := float64(runtime.GOMAXPROCS(0))
	require.InDelta(t, 1/(4+procs), step(0, 0).CPU, 1e-9, "no collection has ended")
	require.InDelta(t, 1/(4+2*procs), step(0, 0).CPU, 1e-9)
	require.InDelta(t, 0.5, step(2, 4).CPU, 1e-9)
	failure = errors.New("gone")
	require.ErrorIs(t, step(0, 0).Err, failure)
	failure = nil
	require.ErrorIs(t, step(-3, 4).Err, ErrNoReading, "counters that went backwards")
	require.InDelta(t, 0.1, step(1, 10).CPU, 1e-9)
}

func TestGCWithMemoryTellsADeathSpiral(t *testing.T) {
	held := heldMemory{total: 800, objects: 0, live: 0, limit: 1000}
	m, err := newMemory(time.Millisecond, fstest.MapFS{}, func() (heldMemory, error) { return held, nil })
	require.NoError(t, err)
	var gc, total float64
	g, err := newGC(0, &gcMeter{memory: m, near: 0.9, read: func() (float64, float64, error) { gc++; total += 2; return gc, total, nil }})
	require.NoError(t, err)
	now := time.Unix(1e9, 0)
	g.Sample(now)
	s := g.Sample(now.Add(time.Second))
	require.InDelta(t, 0.5, s.CPU, 1e-9)
	require.Zero(t, s.Share, "there is room")
	held.total = 950
	share, err := g.Read(now.Add(2 * time.Second))
	require.NoError(t, err)
	require.InDelta(t, 0.5, share, 1e-9)
	held.limit = math.MaxInt64
	_, err = g.Read(now.Add(3 * time.Second))
	require.ErrorIs(t, err, ErrNoMemoryLimit)
}

func TestGCOfThisProcess(t *testing.T) {
	g, err := NewGC(nil)
	require.NoError(t, err)
	now := time.Now()
	g.Sample(now)
	runtime.GC()
	s := g.Sample(now.Add(time.Second))
	require.NoError(t, s.Err)
	require.Positive(t, s.CPU)
	require.LessOrEqual(t, s.CPU, 1.0)
	for _, near := range []float64{-1, 1.1, math.NaN()} {
		_, err = NewGC(&GCOptions{Near: near})
		require.ErrorContains(t, err, "stats: GC: Near must be in (0, 1], got ")
	}
	_, err = NewGC(&GCOptions{Interval: 1})
	require.ErrorContains(t, err, "stats: GC: Interval")
}

func pressureText(total string) string {
	return "some avg10=1.00 avg60=2.00 avg300=3.00 total=" + total + "\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7"
}

func TestPressureIsTheShareOfTheTimeStalled(t *testing.T) {
	fsys := groupTree(map[string]string{
		"proc/self/cgroup": "0::/app", "proc/self/mountinfo": unifiedMount, "proc/pressure/io": pressureText("999"),
		"sys/fs/cgroup/app/io.pressure": pressureText("1000000"),
	})
	p, err := newPressure("io", 250*time.Millisecond, fsys)
	require.NoError(t, err)
	now := time.Unix(1e9, 0)
	require.ErrorIs(t, p.Sample(now).Err, ErrNoReading)
	at := func(after time.Duration, total string) PressureSample {
		fsys["sys/fs/cgroup/app/io.pressure"].Data = []byte(pressureText(total))
		now = now.Add(after)
		return p.Sample(now)
	}
	s := at(time.Second, "1300000")
	require.Equal(t, PressureSample{Share: 0.3, Source: "/sys/fs/cgroup/app/io.pressure", Time: now, Span: time.Second}, s)
	require.Equal(t, s, at(100*time.Millisecond, "2000000"), "not due")
	require.InDelta(t, 1, at(400*time.Millisecond, "2000000").Share, 0, "more than there was time")
	require.ErrorIs(t, at(time.Second, "5").Err, ErrNoReading, "went backwards")
	require.InDelta(t, 0, at(time.Second, "5").Share, 0)

	delete(fsys, "sys/fs/cgroup/app/io.pressure")
	now = now.Add(time.Second)
	require.ErrorIs(t, p.Sample(now).Err, ErrNoReading, "another file is another count")
	fsys["proc/pressure/io"].Data = []byte(pressureText("500999"))
	now = now.Add(time.Second)
	share, err := p.Read(now)
	require.NoError(t, err)
	require.InDelta(t, 0.5, share, 1e-9)
	delete(fsys, "proc/pressure/io")
	_, err = p.Read(now.Add(time.Second))
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestPressureThatIsMalformed(t *testing.T) {
	for _, text := range []string{"", "full total=7", "some avg10=0.00", "some avg10=0.00 total=", "some avg10=0 total=-1", "some x total=99999999999999999999"} {
		_, err := parsePressure([]byte(text))
		require.ErrorIs(t, err, errPressure, text)
	}
	for _, resource := range []string{"", "irq"} {
		_, err := NewPressure(&PressureOptions{Resource: resource})
		require.ErrorContains(t, err, `stats: Pressure: Resource must be "cpu", "memory" or "io", got `)
	}
	_, err := NewPressure(&PressureOptions{Resource: "cpu", Interval: -1})
	require.ErrorContains(t, err, "stats: Pressure: Interval")
}

func FuzzParsePressure(f *testing.F) {
	f.Add([]byte(pressureText("12")))
	f.Add([]byte("some total=1"))
	f.Fuzz(func(t *testing.T, b []byte) {
		total, err := parsePressure(b)
		require.GreaterOrEqual(t, total, time.Duration(0))
		if err != nil {
			require.Zero(t, total)
		}
	})
}

func TestSensorsOfSignalsDoNotAllocate(t *testing.T) {
	if race.Enabled {
		t.Skip("SKIPPED: the race detector allocates on its own account; run without -race")
	}
	m, err := NewMemory(0)
	require.NoError(t, err)
	g, err := NewGC(&GCOptions{Memory: m})
	require.NoError(t, err)
	p, err := NewPressure(&PressureOptions{Resource: "cpu"})
	require.NoError(t, err)
	now := time.Now()
	require.Zero(t, testing.AllocsPerRun(100, func() {
		m.Sample(now)
		g.Sample(now)
		p.Sample(now)
	}), "no reading due")
	require.LessOrEqual(t, testing.AllocsPerRun(10, func() {
		now = now.Add(100 * time.Millisecond)
		m.Sample(now)
	}), 10.0, "the sample, and the limit once in 2 s")
}

func BenchmarkSignalSensors(b *testing.B) {
	m, err := NewMemory(0)
	require.NoError(b, err)
	g, err := NewGC(nil)
	require.NoError(b, err)
	p, err := NewPressure(&PressureOptions{Resource: "cpu"})
	require.NoError(b, err)
	for name, refresh := range map[string]func(time.Time){
		"Memory":   func(now time.Time) { m.Sample(now) },
		"GC":       func(now time.Time) { g.Sample(now) },
		"Pressure": func(now time.Time) { p.Sample(now) },
	} {
		b.Run(name, func(b *testing.B) {
			now := time.Now()
			b.ReportAllocs()
			for b.Loop() {
				now = now.Add(250 * time.Millisecond)
				refresh(now)
			}
		})
	}
}
