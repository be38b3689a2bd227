package cgroup

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
)

// Version is 1 or 2. A hybrid tree has the version that holds its cpu controller.
func (g *Group) Version() int { return g.version }

// CPUs is how many CPUs the group's cpuset names as of the last ReadLimits, 0 if there is none.
func (g *Group) CPUs() int { return g.cpus }

// Moved reports whether the process has been put into another group since Find.
func (g *Group) Moved() bool {
	own, err := fs.ReadFile(g.fsys, membershipFile)
	return err != nil || string(own) != g.membership
}

// ReadLimits reads the quotas of all levels and the cpuset again. A file that is missing or may not be read sets no
// limit; a malformed one is an error.
func (g *Group) ReadLimits() error {
	for i := range g.levels {
		l := &g.levels[i]
		if err := g.readQuota(l); err != nil {
			return fmt.Errorf("%w (in %s)", err, l.dir)
		}
	}
	g.cpus = 0
	for _, name := range g.cpuset {
		b, ok, err := g.readOptional(name)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		n, err := ParseCPUList(b)
		if err != nil {
			return fmt.Errorf("%w (in %s)", err, name)
		}
		if n > 0 {
			g.cpus = n
			return nil
		}
	}
	return nil
}

func (g *Group) readQuota(l *level) error {
	l.quota, l.period = 0, 0
	name := "cpu.max"
	if g.version == 1 {
		name = "cpu.cfs_quota_us"
	}
	b, ok, err := g.readOptional(path.Join(l.dir, name))
	if err != nil || !ok {
		return err
	}
	if g.version == 2 {
		l.quota, l.period, err = ParseMax(b)
		return err
	}
	p, ok, err := g.readOptional(path.Join(l.dir, "cpu.cfs_period_us"))
	if err != nil || !ok {
		return err
	}
	l.quota, l.period, err = ParseCFS(b, p)
	return err
}

func (g *Group) readOptional(name string) (b []byte, ok bool, err error) {
	b, err = fs.ReadFile(g.fsys, name)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil, false, nil
	}
	return b, err == nil, err
}

// Levels appends to dst the own group and each group above it that has a quota, with their counters read now and their
// limits as of the last ReadLimits. An own group that cannot be read is an error; one above it that cannot is left out.
func (g *Group) Levels(dst []Level) ([]Level, error) {
	for i := range g.levels {
		l := &g.levels[i]
		if i > 0 && l.quota == 0 {
			continue
		}
		read, err := g.readLevel(l)
		if err == nil {
			dst = append(dst, read)
		} else if i == 0 {
			return dst, err
		}
	}
	return dst, nil
}

func (g *Group) readLevel(l *level) (Level, error) {
	out := Level{Path: l.path}
	if l.quota > 0 {
		out.Quota, out.Period = float64(l.quota)/float64(l.period), l.period
	}
	// In version 1 cpu.stat holds throttling only, which a group without a quota never sees.
	if g.version == 2 || l.quota > 0 {
		b, err := l.stat.read(g.buf[:])
		if err == nil {
			out.Stat, err = ParseStat(b)
		}
		if err != nil && g.version == 2 {
			return out, err
		}
		if err != nil {
			out.Stat = Stat{}
		}
		out.HasUsed = out.Stat.HasUsed
	}
	if g.version == 2 && !out.HasUsed {
		return out, fmt.Errorf("cgroup: %s has no usage_usec", l.stat.name)
	}
	if g.version == 1 && l.usage.name != "" {
		b, err := l.usage.read(g.buf[:])
		if err != nil {
			return out, err
		}
		if out.Used, err = ParseNanos(b); err != nil {
			return out, err
		}
		out.HasUsed = true
	}
	return out, nil
}

// Close closes the files that g keeps open. Reading g again opens them again.
func (g *Group) Close() {
	for i := range g.levels {
		g.levels[i].stat.close()
		g.levels[i].usage.close()
	}
}

// file is a small file that is kept open and read from its start again and again, which costs one system call instead
// of three.
type file struct {
	fsys fs.FS
	name string
	f    fs.File
}

func (k *file) read(buf []byte) ([]byte, error) {
	if k.f == nil {
		f, err := k.fsys.Open(k.name)
		if err != nil {
			return nil, err
		}
		k.f = f
	}
	at, ok := k.f.(io.ReaderAt)
	if !ok {
		k.close()
		return fs.ReadFile(k.fsys, k.name)
	}
	n, err := at.ReadAt(buf, 0)
	if n == len(buf) {
		return nil, fmt.Errorf("cgroup: %s is larger than %d bytes", k.name, len(buf))
	}
	if err != nil && !errors.Is(err, io.EOF) {
		k.close()
		return nil, err
	}
	return buf[:n], nil
}

func (k *file) close() {
	if k.f != nil {
		_ = k.f.Close() // it was only read from
		k.f = nil
	}
}
