package overload

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	mountsV1 = `31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
34 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
`
	mountsV2 = "29 22 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
	ownV1    = "9:cpu,cpuacct:/user.slice\n1:name=systemd:/user.slice/s.scope\n0::/unified\n"
	ownV2    = "0::/user.slice/session.scope\n"
)

func TestCPUHierarchy(t *testing.T) {
	dir, v2 := cpuHierarchy([]byte(mountsV1))
	require.Equal(t, "/sys/fs/cgroup/cpu,cpuacct", dir)
	require.False(t, v2)
	require.Equal(t, dir, mountOf([]byte(mountsV1), "cpuacct"))

	dir, v2 = cpuHierarchy([]byte(mountsV2))
	require.Equal(t, "/sys/fs/cgroup", dir)
	require.True(t, v2)

	dir, _ = cpuHierarchy(nil)
	require.Empty(t, dir)
}

func TestOwnPath(t *testing.T) {
	require.Equal(t, "/user.slice", ownPath([]byte(ownV1), "cpuacct"))
	require.Equal(t, "/unified", ownPath([]byte(ownV1), ""))
	require.Equal(t, "/user.slice/session.scope", ownPath([]byte(ownV2), ""))
	require.Equal(t, "/", ownPath(nil, "cpu"))
}

func TestCgroupReads(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"cgroup.procs": "12\n7\n", "cpuacct.usage": "1500000\n", "cpu.stat": "usage_usec 2500\nuser_usec 1\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	g := &Cgroup{dirs: []string{dir}}
	ids, err := g.Processes()
	require.NoError(t, err)
	require.Equal(t, []int{12, 7}, ids)
	used, err := g.CPUTime()
	require.NoError(t, err)
	require.Equal(t, 1500*time.Microsecond, used)
	g.v2 = true
	used, err = g.CPUTime()
	require.NoError(t, err)
	require.Equal(t, 2500*time.Microsecond, used)

	require.NoError(t, os.WriteFile(filepath.Join(dir, "cpu.stat"), []byte("nr_periods 0\n"), 0o600))
	_, err = g.CPUTime()
	require.ErrorContains(t, err, "usage_usec")
}
