package cgroup_test

import (
	"io/fs"
	"os"
	"runtime"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/cgroup"
)

func TestLayouts(t *testing.T) {
	for name, layout := range layouts {
		t.Run(name, func(t *testing.T) {
			for kind, fsys := range map[string]fs.FS{"kept open": tree(layout.tree), "opened each time": noReadAt{tree(layout.tree)}} {
				g, err := cgroup.Find(fsys)
				require.NoError(t, err, kind)
				require.Equal(t, layout.version, g.Version())
				require.Equal(t, layout.cpus, g.CPUs())
				for range 2 { // the second time from files kept open
					levels, err := g.Levels(nil)
					require.NoError(t, err)
					require.Len(t, levels, len(layout.levels))
					for i, want := range layout.levels {
						got := levels[i]
						require.Equal(t, want, wantLevel{
							path: got.Path, quota: got.Quota, used: int64(got.Used), unknown: !got.HasUsed, throttled: got.Throttled,
						})
					}
				}
				require.False(t, g.Moved())
				g.Close()
				_, err = g.Levels(nil)
				require.NoError(t, err, "closed files are opened again")
			}
		})
	}
}

// noReadAt hides ReadAt from the files of a file system.
type noReadAt struct{ fs.FS }

func (n noReadAt) Open(name string) (fs.File, error) {
	f, err := n.FS.Open(name)
	return struct{ fs.File }{f}, err
}

func TestFindFails(t *testing.T) {
	for name, lines := range map[string]string{
		"no proc":             "",
		"no mountinfo":        "proc/self/cgroup = 0::/",
		"no mount":            "proc/self/cgroup = 0::/\nproc/self/mountinfo = 27 1 254:0 / / rw - ext4 /dev/vda rw",
		"another's mount":     "proc/self/cgroup = 0::/a\nproc/self/mountinfo = 3 2 0:2 /b /sys/fs/cgroup rw - cgroup2 x rw",
		"similar name":        "proc/self/cgroup = 0::/ab\nproc/self/mountinfo = 3 2 0:2 /a /sys/fs/cgroup rw - cgroup2 x rw",
		"above the namespace": v2Mount + "proc/self/cgroup = 0::/../other",
		"garbage":             "proc/self/cgroup = :::\nproc/self/mountinfo = - cgroup - - cgroup2",
		"v1 without cpu":      v1Accounts + "proc/self/cgroup = 2:cpuacct:/",
	} {
		_, err := cgroup.Find(tree(lines))
		require.ErrorIs(t, err, cgroup.ErrNotFound, name)
	}
}

func TestMalformedLimitsAreErrors(t *testing.T) {
	for file, text := range map[string]string{
		"sys/fs/cgroup/cpu.max":               "lots 100000",
		"sys/fs/cgroup/cpuset.cpus.effective": "3-1",
	} {
		fsys := tree(layouts["v2 in a namespace of its own"].tree)
		set(fsys, file, text)
		_, err := cgroup.Find(fsys)
		require.ErrorContains(t, err, "malformed")
		require.ErrorContains(t, err, "sys/fs/cgroup")
	}
	fsys := tree(layouts["v1 with separate controllers"].tree)
	set(fsys, "sys/fs/cgroup/cpu/app/cpu.cfs_period_us", "0")
	_, err := cgroup.Find(fsys)
	require.ErrorContains(t, err, "cpu.cfs_period_us")
}

func TestLimitsAreReadAgain(t *testing.T) {
	fsys := tree(layouts["v2 in a namespace of its own"].tree)
	g, err := cgroup.Find(fsys)
	require.NoError(t, err)
	set(fsys, "sys/fs/cgroup/cpu.max", "200000 100000")
	set(fsys, "sys/fs/cgroup/cpuset.cpus.effective", "0,5")
	require.Equal(t, 0.5, quota(t, g), "not yet read")
	require.NoError(t, g.ReadLimits())
	require.Equal(t, 2.0, quota(t, g))
	require.Equal(t, 2, g.CPUs())
	set(fsys, "sys/fs/cgroup/cpu.max", "max 100000")
	require.NoError(t, g.ReadLimits())
	require.Zero(t, quota(t, g))

	set(fsys, "proc/self/cgroup", "0::/elsewhere")
	require.True(t, g.Moved())
}

func quota(t *testing.T, g *cgroup.Group) float64 {
	t.Helper()
	levels, err := g.Levels(nil)
	require.NoError(t, err)
	return levels[0].Quota
}

func TestUnreadableCounters(t *testing.T) {
	const own = "sys/fs/cgroup/pod/main/cpu.stat"
	fsys := tree(layouts["v2 with a tighter parent"].tree)
	g, err := cgroup.Find(fsys)
	require.NoError(t, err)

	set(fsys, own, "usage_usec lots")
	_, err = g.Levels(nil)
	require.ErrorContains(t, err, "malformed")
	set(fsys, own, "nr_periods 1")
	_, err = g.Levels(nil)
	require.ErrorContains(t, err, "no usage_usec")
	set(fsys, own, string(make([]byte, 5000)))
	_, err = g.Levels(nil)
	require.ErrorContains(t, err, "larger than")

	g.Close()
	delete(fsys, own)
	_, err = g.Levels(nil)
	require.ErrorIs(t, err, fs.ErrNotExist)

	fsys[own] = &fstest.MapFile{Data: []byte("usage_usec 1\n")}
	g.Close()
	delete(fsys, "sys/fs/cgroup/pod/cpu.stat")
	levels, err := g.Levels(nil)
	require.NoError(t, err)
	require.Len(t, levels, 1, "a parent that cannot be read is left out")
}

func TestUnreadableV1Counters(t *testing.T) {
	fsys := tree(layouts["v1 with separate controllers"].tree)
	g, err := cgroup.Find(fsys)
	require.NoError(t, err)
	set(fsys, "sys/fs/cgroup/cpu/app/cpu.stat", "nr_throttled many")
	levels, err := g.Levels(nil)
	require.NoError(t, err, "usage is known without the throttling")
	require.Zero(t, levels[0].Throttled)
	require.EqualValues(t, 4242, levels[0].Used)
	set(fsys, "sys/fs/cgroup/cpuacct/app/cpuacct.usage", "-1")
	_, err = g.Levels(nil)
	require.ErrorContains(t, err, "nanoseconds")
}

// TestThisMachine reads the real tree. Whatever it is, nothing may be half read.
func TestThisMachine(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("SKIPPED: there are no control groups on " + runtime.GOOS)
	}
	g, err := cgroup.Find(os.DirFS("/"))
	if err != nil {
		require.ErrorIs(t, err, cgroup.ErrNotFound)
		t.Skipf("SKIPPED: this process is in no CPU control group: %v", err)
	}
	defer g.Close()
	first, err := g.Levels(nil)
	require.NoError(t, err)
	second, err := g.Levels(nil)
	require.NoError(t, err)
	require.GreaterOrEqual(t, second[0].Used, first[0].Used)
	t.Logf("version %d, %d CPUs, %+v", g.Version(), g.CPUs(), second)
}
