package cgroup_test

import (
	"io/fs"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/cgroup"
)

func TestFolders(t *testing.T) {
	const memoryMount = "proc/self/mountinfo = 35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
	for name, tt := range map[string]struct {
		tree, controller string
		version          int
		want             []string
	}{
		"v2": {
			tree: v2Mount + "proc/self/cgroup = 0::/pod/main", controller: "memory",
			version: 2, want: []string{"sys/fs/cgroup/pod/main", "sys/fs/cgroup/pod", "sys/fs/cgroup"},
		},
		"v1 before v2": {
			tree:       memoryMount + v2Mount + "proc/self/cgroup = 4:memory:/app\nproc/self/cgroup = 0::/",
			controller: "memory", version: 1, want: []string{"sys/fs/cgroup/memory/app", "sys/fs/cgroup/memory"},
		},
		"v2 alone is asked for": {
			tree:    memoryMount + v2Mount + "proc/self/cgroup = 4:memory:/app\nproc/self/cgroup = 0::/",
			version: 2, want: []string{"sys/fs/cgroup"},
		},
		"the v1 controller is not mounted": {
			tree: v2Mount + "proc/self/cgroup = 4:memory:/app\nproc/self/cgroup = 0::/", controller: "memory",
			version: 2, want: []string{"sys/fs/cgroup"},
		},
		"a container's own mount beside the host's": {
			tree: "proc/self/mountinfo = 3 2 0:2 /pod /mnt/own rw - cgroup2 x rw\n" +
				"proc/self/mountinfo = 4 2 0:2 / /mnt/host rw - cgroup2 x rw\nproc/self/cgroup = 0::/pod/main",
			version: 2, want: []string{"mnt/own/main", "mnt/own"},
		},
		"above the namespace":          {tree: v2Mount + "proc/self/cgroup = 0::/../x", controller: "memory"},
		"a name that begins with dots": {tree: v2Mount + "proc/self/cgroup = 0::/..x", version: 2, want: []string{"sys/fs/cgroup/..x", "sys/fs/cgroup"}},
		"nothing":                      {},
	} {
		t.Run(name, func(t *testing.T) {
			version, paths := cgroup.NewFolders(tree(tt.tree), tt.controller).Look()
			require.Equal(t, tt.version, version)
			require.Equal(t, tt.want, paths)
		})
	}
}

// What is known stays while the files cannot be read, and what is not is looked for again.
func TestFoldersLookAgain(t *testing.T) {
	fsys := tree(v2Mount + "proc/self/cgroup = 0::/a")
	mounts := fsys["proc/self/mountinfo"]
	delete(fsys, "proc/self/mountinfo")
	f := cgroup.NewFolders(fsys, "memory")
	_, paths := f.Look()
	require.Empty(t, paths)
	fsys["proc/self/mountinfo"] = mounts
	_, paths = f.Look()
	require.Equal(t, "sys/fs/cgroup/a", paths[0], "although the process has not moved")

	set(fsys, "proc/self/cgroup", "0::/b")
	_, paths = f.Look()
	require.Equal(t, "sys/fs/cgroup/b", paths[0])

	fsys["proc/self/cgroup"] = &fstest.MapFile{Mode: fs.ModeDir}
	version, paths := f.Look()
	require.Equal(t, 2, version)
	require.Equal(t, "sys/fs/cgroup/b", paths[0])
}
