package cgroup_test

import (
	"strings"
	"testing/fstest"
)

// tree makes a fixture from path and content pairs, one a line: "sys/fs/cgroup/cpu.max = max 100000". Several lines of
// one path make a file of several lines.
func tree(lines string) fstest.MapFS {
	fsys := fstest.MapFS{}
	for line := range strings.SplitSeq(lines, "\n") {
		name, text, ok := strings.Cut(line, " = ")
		if !ok {
			continue
		}
		name = strings.TrimSpace(name)
		if fsys[name] == nil {
			fsys[name] = &fstest.MapFile{}
		}
		fsys[name].Data = append(fsys[name].Data, text+"\n"...)
	}
	return fsys
}

// set replaces the content of a file in place, so that those who have it open see it, as in a real cgroup tree.
func set(fsys fstest.MapFS, name, text string) { fsys[name].Data = []byte(text + "\n") }

const (
	v2Mount    = "proc/self/mountinfo = 31 23 0:28 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
	v1Mounts   = "proc/self/mountinfo = 32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n" + v1Accounts
	v1Accounts = "proc/self/mountinfo = 33 31 0:30 / /sys/fs/cgroup/cpuacct rw - cgroup cgroup rw,cpuacct\n" +
		"proc/self/mountinfo = 34 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
)

// layouts are the trees that a process may find itself in, and what must be read there.
var layouts = map[string]struct {
	tree    string
	version int
	cpus    int
	levels  []wantLevel
}{
	"v2 in a namespace of its own": {
		tree: v2Mount + `
			proc/self/cgroup = 0::/
			sys/fs/cgroup/cpu.max = 50000 100000
			sys/fs/cgroup/cpuset.cpus.effective = 0-7
			sys/fs/cgroup/cpu.stat = usage_usec 12345
			sys/fs/cgroup/cpu.stat = user_usec 10000
			sys/fs/cgroup/cpu.stat = nr_periods 9
			sys/fs/cgroup/cpu.stat = nr_throttled 4
			sys/fs/cgroup/cpu.stat = throttled_usec 77`,
		version: 2, cpus: 8,
		levels: []wantLevel{{path: "/", quota: 0.5, used: 12_345_000, throttled: 4}},
	},
	"v2 in the host's namespace": { // the root belongs to the machine and has no cpu.max
		tree: v2Mount + `
			proc/self/cgroup = 0::/kubepods.slice/pod7.slice/cri-1.scope
			sys/fs/cgroup/cpu.stat = usage_usec 999999999
			sys/fs/cgroup/kubepods.slice/cpu.max = max 100000
			sys/fs/cgroup/kubepods.slice/pod7.slice/cpu.max = max 100000
			sys/fs/cgroup/kubepods.slice/pod7.slice/cri-1.scope/cpu.max = 150000 100000
			sys/fs/cgroup/kubepods.slice/pod7.slice/cri-1.scope/cpu.stat = usage_usec 5`,
		version: 2,
		levels:  []wantLevel{{path: "/kubepods.slice/pod7.slice/cri-1.scope", quota: 1.5, used: 5000}},
	},
	"v2 with a tighter parent": {
		tree: v2Mount + `
			proc/self/cgroup = 0::/pod/main
			sys/fs/cgroup/pod/cpu.max = 100000 100000
			sys/fs/cgroup/pod/cpu.stat = usage_usec 30
			sys/fs/cgroup/pod/main/cpu.max = 200000 100000
			sys/fs/cgroup/pod/main/cpu.stat = usage_usec 10`,
		version: 2,
		levels:  []wantLevel{{path: "/pod/main", quota: 2, used: 10_000}, {path: "/pod", quota: 1, used: 30_000}},
	},
	"v2 without the cpu controller in the leaf": {
		tree: v2Mount + `
			proc/self/cgroup = 0::/app.service/worker
			sys/fs/cgroup/app.service/cpu.max = 25000 50000
			sys/fs/cgroup/app.service/cpuset.cpus.effective = 2-3
			sys/fs/cgroup/app.service/cpu.stat = usage_usec 30
			sys/fs/cgroup/app.service/worker/cpu.stat = usage_usec 10`,
		version: 2, cpus: 2,
		levels: []wantLevel{{path: "/app.service/worker", used: 10_000}, {path: "/app.service", quota: 0.5, used: 30_000}},
	},
	"v2 without a limit": {
		tree: v2Mount + `
			proc/self/cgroup = 0::/user.slice
			sys/fs/cgroup/user.slice/cpu.max = max 100000
			sys/fs/cgroup/user.slice/cpuset.cpus = 
			sys/fs/cgroup/user.slice/cpu.stat = usage_usec 10`,
		version: 2,
		levels:  []wantLevel{{path: "/user.slice", used: 10_000}},
	},
	"v2 with the container's own mount beside the host's": {
		tree: `
			proc/self/cgroup = 0::/docker/5f
			proc/self/mountinfo = 40 23 0:28 / /host/sys/fs/cgroup ro - cgroup2 cgroup2 rw
			proc/self/mountinfo = 31 23 0:28 /docker/5f /sys/fs/my\040cgroup rw - cgroup2 cgroup2 rw
			sys/fs/my cgroup/cpu.max = 100000 100000
			sys/fs/my cgroup/cpu.stat = usage_usec 10`,
		version: 2,
		levels:  []wantLevel{{path: "/docker/5f", quota: 1, used: 10_000}},
	},
	"v1 with separate controllers": {
		tree: v1Mounts + `
			proc/self/cgroup = 3:cpuset:/app
			proc/self/cgroup = 2:cpuacct:/app
			proc/self/cgroup = 1:cpu:/app
			sys/fs/cgroup/cpu/cpu.cfs_quota_us = -1
			sys/fs/cgroup/cpu/cpu.cfs_period_us = 100000
			sys/fs/cgroup/cpu/app/cpu.cfs_quota_us = 20000
			sys/fs/cgroup/cpu/app/cpu.cfs_period_us = 100000
			sys/fs/cgroup/cpu/app/cpu.stat = nr_periods 7
			sys/fs/cgroup/cpu/app/cpu.stat = nr_throttled 3
			sys/fs/cgroup/cpu/app/cpu.stat = throttled_time 123
			sys/fs/cgroup/cpuacct/app/cpuacct.usage = 4242
			sys/fs/cgroup/cpuset/app/cpuset.cpus = 0,2`,
		version: 1, cpus: 2,
		levels: []wantLevel{{path: "/app", quota: 0.2, used: 4242, throttled: 3}},
	},
	"v1 combined, mounted from the container's root": {
		tree: `
			proc/self/cgroup = 4:cpu,cpuacct:/docker/5f
			proc/self/mountinfo = 36 35 0:29 /docker/5f /sys/fs/cgroup/cpu,cpuacct ro shared:9 - cgroup cgroup rw,cpu,cpuacct
			sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us = 250000
			sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us = 100000
			sys/fs/cgroup/cpu,cpuacct/cpuacct.usage = 99`,
		version: 1,
		levels:  []wantLevel{{path: "/docker/5f", quota: 2.5, used: 99}},
	},
	"hybrid with an empty v2 tree": {
		tree: v1Mounts + `
			proc/self/mountinfo = 41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
			proc/self/cgroup = 3:cpuset:/
			proc/self/cgroup = 2:cpuacct:/
			proc/self/cgroup = 1:cpu:/
			proc/self/cgroup = 0::/
			sys/fs/cgroup/cpu/cpu.cfs_quota_us = -1
			sys/fs/cgroup/cpu/cpu.cfs_period_us = 100000
			sys/fs/cgroup/cpuacct/cpuacct.usage = 185870386650
			sys/fs/cgroup/cpuset/cpuset.cpus = 0-1
			sys/fs/cgroup/cpuset/cpuset.effective_cpus = 0-1
			sys/fs/cgroup/unified/cpu.stat = usage_usec 1`,
		version: 1, cpus: 2,
		levels: []wantLevel{{path: "/", used: 185870386650}},
	},
	"hybrid with the cpu controller in v2": {
		tree: `
			proc/self/mountinfo = 41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
			proc/self/mountinfo = 35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
			proc/self/cgroup = 4:memory:/app
			proc/self/cgroup = 0::/app
			sys/fs/cgroup/unified/app/cpu.max = 300000 100000
			sys/fs/cgroup/unified/app/cpu.stat = usage_usec 1`,
		version: 2,
		levels:  []wantLevel{{path: "/app", quota: 3, used: 1000}},
	},
	"v1 whose parent has the quota": {
		tree: v1Mounts + `
			proc/self/cgroup = 2:cpuacct:/pod/main
			proc/self/cgroup = 1:cpu:/pod/main
			sys/fs/cgroup/cpu/pod/cpu.cfs_quota_us = 100000
			sys/fs/cgroup/cpu/pod/cpu.cfs_period_us = 100000
			sys/fs/cgroup/cpu/pod/main/cpu.cfs_quota_us = -1
			sys/fs/cgroup/cpu/pod/main/cpu.cfs_period_us = 100000
			sys/fs/cgroup/cpuacct/pod/cpuacct.usage = 30
			sys/fs/cgroup/cpuacct/pod/main/cpuacct.usage = 10`,
		version: 1,
		levels:  []wantLevel{{path: "/pod/main", used: 10}, {path: "/pod", quota: 1, used: 30}},
	},
	"v1 with a quota but accounted for in the root": {
		tree: v1Mounts + `
			proc/self/cgroup = 2:cpuacct:/
			proc/self/cgroup = 1:cpu:/app
			sys/fs/cgroup/cpu/app/cpu.cfs_quota_us = 100000
			sys/fs/cgroup/cpu/app/cpu.cfs_period_us = 100000
			sys/fs/cgroup/cpuacct/cpuacct.usage = 999999`,
		version: 1,
		levels:  []wantLevel{{path: "/app", quota: 1, unknown: true}},
	},
	"v1 with a cpuset but accounted for in the root": {
		tree: v1Mounts + `
			proc/self/cgroup = 3:cpuset:/pinned
			proc/self/cgroup = 2:cpuacct:/
			proc/self/cgroup = 1:cpu:/
			sys/fs/cgroup/cpuset/pinned/cpuset.cpus = 5
			sys/fs/cgroup/cpuacct/cpuacct.usage = 999999`,
		version: 1, cpus: 1,
		levels: []wantLevel{{path: "/", unknown: true}},
	},
	"v1 accounted for more finely than limited": {
		tree: v1Mounts + `
			proc/self/cgroup = 2:cpuacct:/app/worker
			proc/self/cgroup = 1:cpu:/app
			sys/fs/cgroup/cpuacct/app/worker/cpuacct.usage = 7
			sys/fs/cgroup/cpuacct/app/cpuacct.usage = 9`,
		version: 1,
		levels:  []wantLevel{{path: "/app", used: 7}},
	},
	"v1 without cpuacct": {
		tree: `
			proc/self/mountinfo = 32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu
			proc/self/cgroup = 1:cpu:/app`,
		version: 1,
		levels:  []wantLevel{{path: "/app", unknown: true}},
	},
}

type wantLevel struct {
	path      string
	quota     float64
	used      int64 // ns
	unknown   bool
	throttled uint64
}
