package cgroup

import (
	"iter"
	"path"
	"slices"
	"strconv"
	"strings"
)

// membership is the content of /proc/self/cgroup: the process's path in each hierarchy.
type membership struct {
	unified    string            // in version 2; "" if the process has no group
	controller map[string]string // in version 1, by controller
}

// parseMembership reads lines such as "4:cpu,cpuacct:/docker/5f" and "0::/user.slice". Lines of any other form are skipped, and
// so are paths above the namespace's root ("/../x"), which cannot be reached.
func parseMembership(s string) membership {
	m := membership{controller: map[string]string{}}
	for line := range strings.SplitSeq(s, "\n") {
		id, rest, ok := strings.Cut(line, ":")
		controllers, dir, ok2 := strings.Cut(rest, ":")
		if !ok || !ok2 || !strings.HasPrefix(dir, "/") || dir == "/.." || strings.HasPrefix(dir, "/../") {
			continue
		}
		if controllers == "" {
			if id == "0" {
				m.unified = path.Clean(dir)
			}
			continue
		}
		for c := range strings.SplitSeq(controllers, ",") {
			m.controller[c] = path.Clean(dir)
		}
	}
	return m
}

// mount is one cgroup file system as /proc/self/mountinfo shows it.
type mount struct {
	root        string   // the group that stands at the mount point
	point       string   // where it is mounted, as an fs.FS path (no leading slash)
	controllers []string // of a version 1 mount; nil for version 2
}

// parseMounts returns the cgroup mounts among the lines of /proc/self/mountinfo (proc(5)):
//
//	36 35 0:29 /docker/5f /sys/fs/cgroup/cpu rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct
func parseMounts(s string) []mount {
	var mounts []mount
	for line := range strings.SplitSeq(s, "\n") {
		head, tail, ok := strings.Cut(line, " - ")
		if !ok || !strings.HasPrefix(tail, "cgroup") {
			continue
		}
		h, t := strings.Fields(head), strings.Fields(tail)
		if len(h) < 6 || len(t) < 2 {
			continue
		}
		point := strings.TrimPrefix(path.Clean(unescape(h[4])), "/")
		if point == "" {
			continue
		}
		m := mount{root: path.Clean(unescape(h[3])), point: point}
		switch {
		case t[0] == "cgroup" && len(t) >= 3:
			m.controllers = strings.Split(t[len(t)-1], ",")
		case t[0] != "cgroup2":
			continue
		}
		mounts = append(mounts, m)
	}
	return mounts
}

// unescape undoes the octal escapes (\040 for a space) of mountinfo.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+4 <= len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// dir returns the path of group in the file system, if the mount shows it.
func (m mount) dir(group string) (string, bool) {
	if !within(group, m.root) {
		return "", false
	}
	return path.Join(m.point, strings.TrimPrefix(group, m.root)), true
}

// upwards yields group and its parents, with their paths, as far as the mount shows them.
func (m mount) upwards(group string) iter.Seq2[string, string] {
	return func(yield func(group, dir string) bool) {
		for {
			dir, ok := m.dir(group)
			if !ok || !yield(group, dir) || group == "/" {
				return
			}
			group = path.Dir(group)
		}
	}
}

// within reports whether group is root or below it.
func within(group, root string) bool {
	return root == "/" || group == root || strings.HasPrefix(group, root+"/")
}

// find returns the mount that shows group of the hierarchy with the given controller ("" for version 2), and whether
// there is one. If several do, the mount that starts nearest to the group wins: a container's own mount rather than a
// mounted view of the host's tree.
func find(mounts []mount, controller, group string) (mount, bool) {
	var best mount
	found := false
	for _, m := range mounts {
		if !m.has(controller) || !within(group, m.root) {
			continue
		}
		if !found || len(m.root) > len(best.root) {
			best, found = m, true
		}
	}
	return best, found
}

func (m mount) has(controller string) bool {
	if controller == "" {
		return m.controllers == nil
	}
	return slices.Contains(m.controllers, controller)
}
