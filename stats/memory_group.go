package stats

import (
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// controlGroups finds the folders of the process's control group and of those above it, for one version 1 controller or,
// if that is not there, in version 2.
type controlGroups struct {
	fsys       fs.FS
	controller string // "" for version 2 only
	membership string // the text that folders were found by
	version    int    // 0 if there is none
	folders    []string
}

// look finds the folders, anew if the process has been moved.
func (c *controlGroups) look() {
	own, err := fs.ReadFile(c.fsys, "proc/self/cgroup")
	if err != nil || string(own) == c.membership {
		return
	}
	c.membership, c.version, c.folders = string(own), 0, nil
	info, err := fs.ReadFile(c.fsys, "proc/self/mountinfo")
	if err != nil {
		return
	}
	for line := range strings.SplitSeq(c.membership, "\n") {
		part := strings.SplitN(line, ":", 3)
		if len(part) < 3 || !strings.HasPrefix(part[2], "/") || strings.HasPrefix(part[2], "/..") {
			continue
		}
		var version int
		switch {
		case part[0] == "0" && part[1] == "" && c.version == 0:
			version = 2
		case c.controller != "" && slices.Contains(strings.Split(part[1], ","), c.controller):
			version = 1
		default:
			continue
		}
		if folders := climb(string(info), version, c.controller, path.Clean(part[2])); folders != nil {
			c.version, c.folders = version, folders
		}
	}
}

// climb returns the folders of group and of those above it, as far as a mount shows them.
func climb(info string, version int, controller, group string) (folders []string) {
	for line := range strings.SplitSeq(info, "\n") {
		head, tail, ok := strings.Cut(line, " - ")
		h, t := strings.Fields(head), strings.Fields(tail)
		if !ok || len(h) < 6 || len(t) < 2 {
			continue
		}
		if version == 2 && t[0] != "cgroup2" ||
			version == 1 && (t[0] != "cgroup" || !slices.Contains(strings.Split(t[len(t)-1], ","), controller)) {
			continue
		}
		root, point := path.Clean(unescapeMount(h[3])), strings.TrimPrefix(path.Clean(unescapeMount(h[4])), "/")
		if root != "/" && group != root && !strings.HasPrefix(group, root+"/") {
			continue
		}
		folders = folders[:0] // where several mounts show it, the last hides the others
		for at := group; ; at = path.Dir(at) {
			folders = append(folders, path.Join(point, strings.TrimPrefix(at, root)))
			if at == root || at == "/" {
				break
			}
		}
	}
	return folders
}

// unescapeMount undoes the octal escapes (\040 for a space) of mountinfo.
func unescapeMount(s string) string {
	if out, err := strconv.Unquote(`"` + strings.ReplaceAll(s, `"`, `\"`) + `"`); err == nil {
		return out
	}
	return s
}
