package stats

import (
	"io/fs"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestHostSource(t *testing.T) {
	fsys := v2Tree()
	h := newHostSource(fsys)
	h.clock = nil
	r := mustRead(t, h, cpuEpoch)
	require.Equal(t, CPUReading{Source: "host", Levels: []CPULevel{
		{Name: "host", Used: (100 + 50 + 1 + 2 + 3) * 10 * time.Millisecond, Limit: 64}, // not idle, iowait, guest
	}}, r)

	write(fsys, "sys/devices/system/cpu/online", "0-31")
	require.Equal(t, 64.0, mustRead(t, h, cpuEpoch.Add(time.Second)).Levels[0].Limit)
	require.Equal(t, 32.0, mustRead(t, h, cpuEpoch.Add(2*time.Second)).Levels[0].Limit, "read again after 2 s")

	for _, bad := range []string{"", "intr 1 2 3 4 5", "cpu  1 2 3", "cpu  1 2 3 -4 5", "cpu  9007199254740991 9007199254740991 9007199254740991 1"} {
		write(fsys, "proc/stat", bad)
		_, err := h.ReadCPU(cpuEpoch)
		require.ErrorContains(t, err, "stats: host: ", "%q", bad)
	}
	delete(fsys, "proc/stat")
	_, err := h.ReadCPU(cpuEpoch)
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestAutoSourceChooses(t *testing.T) {
	for _, test := range []struct {
		name   string
		numCPU int
		set    map[string]string
		remove []string
		want   string
	}{
		{name: "no limit: the host", numCPU: 64, want: "host"},
		{name: "own quota", numCPU: 64, set: map[string]string{ownGroup + "cpu.max": "6400000 100000"}, want: "cgroup v2"},
		{name: "quota further up", numCPU: 64, set: map[string]string{"sys/fs/cgroup/pod/cpu.max": "100000 100000"}, want: "cgroup v2"},
		{name: "cpuset", numCPU: 2, set: map[string]string{ownGroup + "cpuset.cpus.effective": "3,4"}, want: "cgroup v2"},
		{name: "affinity", numCPU: 2, want: "process"},
		{name: "no cgroup", numCPU: 64, remove: []string{"proc/self/cgroup"}, want: "host"},
		{name: "no host", numCPU: 64, remove: []string{"proc/stat"}, want: "process"},
		{name: "nothing", numCPU: 64, remove: []string{"proc/stat", "proc/self/cgroup"}, want: "process"},
	} {
		fsys := v2Tree()
		for name, text := range test.set {
			write(fsys, name, text)
		}
		for _, name := range test.remove {
			delete(fsys, name)
		}
		require.Equal(t, test.want, mustRead(t, fixedAuto(fsys, test.numCPU), cpuEpoch).Source, test.name)
	}
}

func fixedAuto(fsys fstest.MapFS, numCPU int) *autoSource {
	a := newAutoSource(fsys)
	fixed(a.group, numCPU, time.Second)
	fixed(a.process.(*processSource).group, numCPU, time.Second)
	a.numCPU = numCPU
	return a
}

func TestAutoSourceNoticesALimit(t *testing.T) {
	fsys := v2Tree()
	a := fixedAuto(fsys, 64)
	require.Equal(t, "host", mustRead(t, a, cpuEpoch).Source)
	write(fsys, ownGroup+"cpu.max", "100000 100000")
	require.Equal(t, "cgroup v2", mustRead(t, a, cpuEpoch.Add(2*time.Second)).Source)
	write(fsys, ownGroup+"cpu.max", "max 100000")
	require.Equal(t, "host", mustRead(t, a, cpuEpoch.Add(4*time.Second)).Source)
	delete(fsys, "proc/stat")
	_, err := a.ReadCPU(cpuEpoch.Add(5 * time.Second))
	require.ErrorIs(t, err, fs.ErrNotExist, "a host that could be read once is not given up for the process")
}

// TestSwitchingSourcesMakesNoSpike changes which counters are read, of which each stands elsewhere.
func TestSwitchingSourcesMakesNoSpike(t *testing.T) {
	fsys := v2Tree()
	write(fsys, "proc/stat", "cpu  100000 0 0 0")
	cpu, err := NewCPU(&CPUOptions{Source: fixedAuto(fsys, 64)})
	require.NoError(t, err)
	now := cpuEpoch
	for i := range 60 {
		switch i {
		case 20:
			write(fsys, ownGroup+"cpu.max", "100000 100000")
		case 40:
			write(fsys, ownGroup+"cpu.max", "max 100000")
		}
		s := cpu.Sample(now)
		require.Zero(t, s.Usage, "at %d, %s", i, s.Source)
		now = now.Add(cpuInterval)
	}
}

func FuzzParseProcStat(f *testing.F) {
	f.Add([]byte("cpu  100 0 50 9000 7 1 2 3 50 0"))
	f.Add([]byte("cpu 1 2 3 4"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if used, err := parseProcStat(b); err != nil {
			require.Zero(t, used)
		} else {
			require.GreaterOrEqual(t, used, time.Duration(0))
		}
	})
}
