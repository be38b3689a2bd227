package cgroup

import "io/fs"

// Folders finds the files of the calling process's control group and of its parent groups, for one controller. It is
// not safe for concurrent use.
type Folders struct {
	fsys       fs.FS
	controller string
	membership string // the text of /proc/self/cgroup from which they were found
	version    int
	paths      []string
}

// NewFolders returns the Folders of a controller: in version 1 if it is mounted there, otherwise in version 2, and in version 2
// if controller is "". fsys stands for "/".
func NewFolders(fsys fs.FS, controller string) *Folders {
	return &Folders{fsys: fsys, controller: controller}
}

// Look returns the version, 1 or 2, and the folders of the process's group and of those parent groups that a mount
// shows, as paths in fsys. It searches again if the process has been moved to another group. If the folders cannot be
// found, there are none.
func (f *Folders) Look() (version int, paths []string) {
	own, err := fs.ReadFile(f.fsys, membershipFile)
	if err != nil || f.version != 0 && string(own) == f.membership {
		return f.version, f.paths
	}
	f.membership, f.version, f.paths = string(own), 0, nil
	info, err := fs.ReadFile(f.fsys, mountsFile)
	if err != nil {
		return 0, nil
	}
	member, mounts := parseMembership(f.membership), parseMounts(string(info))
	if !f.find(mounts, 1, f.controller, member.controller[f.controller]) {
		f.find(mounts, 2, "", member.unified)
	}
	return f.version, f.paths
}

// find finds the folders of group, which is "" if the process has none, and reports whether there are any.
func (f *Folders) find(mounts []mount, version int, controller, group string) bool {
	m, ok := find(mounts, controller, group)
	if !ok || group == "" {
		return false
	}
	f.version = version
	for _, dir := range m.upwards(group) {
		f.paths = append(f.paths, dir)
	}
	return true
}
