package stats

import (
	"errors"
	"io/fs"
	"strconv"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"
)

var cpuEpoch = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

const ownGroup = "sys/fs/cgroup/pod/main/"

// v2Tree is a machine of 64 CPUs on which this process is in /pod/main, without any limit.
func v2Tree() fstest.MapFS {
	fsys := fstest.MapFS{}
	for name, text := range map[string]string{
		"proc/self/cgroup":                 "0::/pod/main",
		"proc/self/mountinfo":              "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw",
		"proc/stat":                        "cpu  100 0 50 9000 7 1 2 3 50 0\ncpu0 1 2 3",
		"sys/devices/system/cpu/online":    "0-63",
		"sys/fs/cgroup/pod/cpu.max":        "max 100000",
		"sys/fs/cgroup/pod/cpu.stat":       "usage_usec 3000",
		ownGroup + "cpu.max":               "max 100000",
		ownGroup + "cpu.stat":              "usage_usec 1000\nnr_periods 3\nnr_throttled 2\nthrottled_usec 4",
		ownGroup + "cpuset.cpus.effective": "0-63",
	} {
		fsys[name] = &fstest.MapFile{Data: []byte(text + "\n")}
	}
	return fsys
}

// write replaces a file in place, so that a source which has it open sees it.
func write(fsys fstest.MapFS, name, text string) {
	if fsys[name] == nil {
		fsys[name] = &fstest.MapFile{}
	}
	fsys[name].Data = []byte(text + "\n")
}

// fixed gives a source a machine of its own: its time comes from the argument, its process has used used.
func fixed(c *cgroupSource, numCPU int, used time.Duration) *cgroupSource {
	c.clock, c.numCPU = nil, numCPU
	c.process = func() (time.Duration, error) { return used, nil }
	return c
}

func mustRead(t *testing.T, s CPUSource, now time.Time) CPUReading {
	t.Helper()
	r, err := s.ReadCPU(now)
	require.NoError(t, err)
	require.NoError(t, r.validate())
	return r
}

func TestCgroupSourceLevels(t *testing.T) {
	fsys := v2Tree()
	write(fsys, ownGroup+"cpu.max", "50000 100000")
	write(fsys, "sys/fs/cgroup/pod/cpu.max", "200000 100000")
	r := mustRead(t, fixed(newCgroupSource(fsys), 64, 0), cpuEpoch)
	require.Equal(t, CPUReading{Source: "cgroup v2", Levels: []CPULevel{
		{Name: "/pod/main", Used: time.Millisecond, Limit: 0.5, Period: 100 * time.Millisecond,
			Periods: 3, ThrottledPeriods: 2, Throttled: 4 * time.Microsecond},
		{Name: "/pod", Used: 3 * time.Millisecond, Limit: 2, Period: 100 * time.Millisecond},
	}}, r)
}

func TestCgroupSourceLimitIsTheLeast(t *testing.T) {
	for _, test := range []struct {
		name, max, cpuset string
		numCPU            int
		want              float64
	}{
		{"no limit", "max 100000", "0-63", 64, 64},
		{"quota", "50000 100000", "0-63", 64, 0.5},
		{"cpuset", "max 100000", "4-5", 64, 2},
		{"cpuset below quota", "800000 100000", "4-5", 64, 2},
		{"affinity below all", "800000 100000", "0-5", 3, 3},
		{"no cpuset", "max 100000", "", 16, 16},
	} {
		fsys := v2Tree()
		write(fsys, ownGroup+"cpu.max", test.max)
		write(fsys, ownGroup+"cpuset.cpus.effective", test.cpuset)
		r := mustRead(t, fixed(newCgroupSource(fsys), test.numCPU, 0), cpuEpoch)
		require.Equal(t, test.want, r.Levels[0].Limit, test.name)
	}
}

// TestCgroupUsage goes from files to fractions.
func TestCgroupUsage(t *testing.T) {
	const interval = cpuInterval
	for _, test := range []struct {
		name     string
		set      map[string]string
		own, pod time.Duration // CPU time used in one interval
		want     float64
		level    string
	}{
		{"0.45 of a quota of 0.5", map[string]string{ownGroup + "cpu.max": "50000 100000"}, interval * 45 / 100, interval, 0.9, "/pod/main"},
		{"2 of 64 CPUs fully busy", map[string]string{ownGroup + "cpuset.cpus.effective": "7,9"}, 2 * interval, 50 * interval, 1, "/pod/main"},
		{"nested limit at the parent", map[string]string{"sys/fs/cgroup/pod/cpu.max": "100000 100000"}, interval / 10, interval * 3 / 4, 0.75, "/pod"},
		{"own limit nearer than the parent's", map[string]string{
			"sys/fs/cgroup/pod/cpu.max": "400000 100000", ownGroup + "cpu.max": "100000 100000",
		}, interval / 2, interval, 0.5, "/pod/main"},
		{"no quota: the node's CPUs", nil, 32 * interval, 64 * interval, 0.5, "/pod/main"},
	} {
		fsys := v2Tree()
		for name, text := range test.set {
			write(fsys, name, text)
		}
		cpu, err := NewCPU(&CPUOptions{Source: fixed(newCgroupSource(fsys), 64, 0)})
		require.NoError(t, err)
		cpu.Sample(cpuEpoch)
		write(fsys, ownGroup+"cpu.stat", usageUsec(time.Millisecond+test.own))
		write(fsys, "sys/fs/cgroup/pod/cpu.stat", usageUsec(3*time.Millisecond+test.pod))
		s := cpu.Sample(cpuEpoch.Add(interval))
		require.NoError(t, s.Err, test.name)
		require.InDelta(t, test.want, s.Usage, 1e-9, test.name)
		require.Equal(t, test.level, s.Level, test.name)
	}
}

func usageUsec(d time.Duration) string {
	return "usage_usec " + strconv.FormatInt(d.Microseconds(), 10)
}

func TestCgroupLiveResize(t *testing.T) {
	fsys := v2Tree()
	write(fsys, ownGroup+"cpu.max", "100000 100000")
	cpu, err := NewCPU(&CPUOptions{Source: fixed(newCgroupSource(fsys), 64, 0)})
	require.NoError(t, err)
	used := time.Millisecond
	step := func(i int) CPUSample {
		used += cpuInterval * 8 / 10
		write(fsys, ownGroup+"cpu.stat", usageUsec(used))
		return cpu.Sample(cpuEpoch.Add(time.Duration(i) * cpuInterval))
	}
	step(0)
	require.InDelta(t, 0.8, step(1).Usage, 1e-9)
	write(fsys, ownGroup+"cpu.max", "200000 100000")
	for i := 2; i < 8; i++ {
		require.InDelta(t, 0.8, step(i).Usage, 1e-9, "not before 2 s")
	}
	s := step(8)
	require.InDelta(t, 0.4, s.Usage, 1e-9)
	require.Equal(t, 2.0, s.Limit)
}

func TestCgroupSourceFollowsAMove(t *testing.T) {
	fsys := v2Tree()
	cpu, err := NewCPU(&CPUOptions{Source: fixed(newCgroupSource(fsys), 64, 0)})
	require.NoError(t, err)
	cpu.Sample(cpuEpoch)
	write(fsys, "proc/self/cgroup", "0::/other")
	write(fsys, "sys/fs/cgroup/other/cpu.stat", "usage_usec 999000000")
	write(fsys, "sys/fs/cgroup/other/cpu.max", "50000 100000")
	s := cpu.Sample(cpuEpoch.Add(2 * time.Second))
	require.ErrorIs(t, s.Err, ErrNoReading, "another group's counter is not compared with")
	require.Equal(t, 0.5, s.Limit)
	write(fsys, "sys/fs/cgroup/other/cpu.stat", "usage_usec 999025000")
	s = cpu.Sample(cpuEpoch.Add(2250 * time.Millisecond))
	require.InDelta(t, 0.2, s.Usage, 1e-9)
	require.Equal(t, "/other", s.Level)
}

func TestCgroupUnreadableIsUnknown(t *testing.T) {
	fsys := v2Tree()
	write(fsys, ownGroup+"cpu.max", "50000 100000")
	source := newAutoSource(fsys)
	fixed(source.group, 64, 0)
	cpu, err := NewCPU(&CPUOptions{Source: source})
	require.NoError(t, err)
	cpu.Sample(cpuEpoch)
	good := cpu.Sample(cpuEpoch.Add(cpuInterval))
	require.NoError(t, good.Err)

	write(fsys, ownGroup+"cpu.stat", "oops")
	s := cpu.Sample(cpuEpoch.Add(2 * cpuInterval))
	require.ErrorContains(t, s.Err, "cpu.stat")
	require.Equal(t, uint64(1), s.Errors)
	require.Equal(t, good.Time, s.Time)
	require.Equal(t, "cgroup v2", s.Source, "the host is no stand-in for a group with a limit")

	write(fsys, ownGroup+"cpu.stat", "usage_usec 51000")
	s = cpu.Sample(cpuEpoch.Add(3 * cpuInterval))
	require.NoError(t, s.Err, "found again")
	require.InDelta(t, 0.2, s.Usage, 1e-9, "over the two intervals")

	write(fsys, ownGroup+"cpu.max", "???")
	require.ErrorContains(t, cpu.Sample(cpuEpoch.Add(time.Minute)).Err, "cpu.max")
}

func TestCgroupSourceUsesProcessTimeWhereNotAccountedFor(t *testing.T) {
	fsys := fstest.MapFS{}
	write(fsys, "proc/self/cgroup", "2:cpuacct:/\n1:cpu:/app")
	write(fsys, "proc/self/mountinfo", "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"+
		"33 31 0:30 / /sys/fs/cgroup/cpuacct rw - cgroup cgroup rw,cpuacct")
	write(fsys, "sys/fs/cgroup/cpu/app/cpu.cfs_quota_us", "100000")
	write(fsys, "sys/fs/cgroup/cpu/app/cpu.cfs_period_us", "100000")
	write(fsys, "sys/fs/cgroup/cpuacct/cpuacct.usage", "99999999999")
	c := fixed(newCgroupSource(fsys), 64, 7*time.Second)
	r := mustRead(t, c, cpuEpoch)
	require.Equal(t, "cgroup v1", r.Source)
	require.Equal(t, []CPULevel{{Name: "/app (process)", Used: 7 * time.Second, Limit: 1, Period: 100 * time.Millisecond}}, r.Levels)

	c.process = func() (time.Duration, error) { return 0, errors.New("no rusage") }
	_, err := c.ReadCPU(cpuEpoch)
	require.EqualError(t, err, "no rusage")
}

func TestCgroupSourceLooksSeldomForWhatIsNotThere(t *testing.T) {
	fsys := &countingFS{FS: fstest.MapFS{}}
	c := newCgroupSource(fsys)
	for i := range 40 {
		_, err := c.ReadCPU(cpuEpoch.Add(time.Duration(i) * 100 * time.Millisecond))
		require.ErrorIs(t, err, fs.ErrNotExist)
	}
	require.Equal(t, 2, fsys.opened, "in 4 s")
}

type countingFS struct {
	fs.FS
	opened int
}

func (c *countingFS) Open(name string) (fs.File, error) {
	c.opened++
	return c.FS.Open(name)
}

func TestProcessSource(t *testing.T) {
	fsys := v2Tree()
	write(fsys, ownGroup+"cpu.max", "50000 100000")
	p := newProcessSource(fsys)
	fixed(p.group, 64, 3*time.Second)
	r := mustRead(t, p, cpuEpoch)
	require.Equal(t, "process", r.Source)
	require.Equal(t, 0.5, r.Levels[0].Limit, "the group's limit applies")
	require.Equal(t, 3*time.Second, r.Levels[0].Used)

	p = newProcessSource(fstest.MapFS{})
	fixed(p.group, 64, 3*time.Second)
	r = mustRead(t, p, cpuEpoch)
	require.Equal(t, []CPULevel{{Name: "process", Used: 3 * time.Second, Limit: 64}}, r.Levels)
}

func TestProcessTimeGrowsWithWork(t *testing.T) {
	before, err := processTime()
	require.NoError(t, err)
	for now := before; now < before+20*time.Millisecond; {
		now, err = processTime()
		require.NoError(t, err)
	}
}

func TestRealSourcesRead(t *testing.T) {
	for name, source := range map[string]CPUSource{"host": HostCPU(), "process": ProcessCPU(), "auto": AutoCPU()} {
		first := mustRead(t, source, time.Now())
		second := mustRead(t, source, time.Now())
		require.False(t, second.At.Before(first.At), name)
		require.GreaterOrEqual(t, second.Levels[0].Used, first.Levels[0].Used, name)
		t.Logf("%s: %+v", name, second)
	}
	r, err := CgroupCPU().ReadCPU(time.Now())
	t.Logf("cgroup: %+v %v", r, err)
}
