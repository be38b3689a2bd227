// Package cgroup reads the CPU controllers of Linux control groups for the calling process. It returns how much
// CPU its group and the groups above it have used, and how much they may use.
//
//	group, err := cgroup.Find(os.DirFS("/"))
//	levels, err := group.Levels(nil) // own group first, then each group above it that has a quota
//	used, quota := levels[0].Used, levels[0].Quota
//
// For other controllers, Folders finds their files.
//
// The group is found through /proc/self/cgroup and /proc/self/mountinfo. /sys/fs/cgroup need not be the process's own
// group: with the host's cgroup namespace it is the whole machine's. Versions 1 (separate or combined controllers), 2
// and hybrid trees are supported. Everything goes through an fs.FS, so tests use fixture trees.
package cgroup
