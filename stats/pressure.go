package stats

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"
	"time"

	"github.com/spillway-go/spillway/internal/cgroup"
)

// PressureOptions configure a sensor of [NewPressure].
type PressureOptions struct {
	// Resource is the resource to watch: "cpu", "memory" or "io". It is required.
	Resource string
	// Interval is the least time between two readings. If Interval is 0, it is 250 ms. It is at
	// least 1 ms.
	Interval time.Duration
}

// A PressureSample says for what share of the time tasks were stalled, as published by the Sensor of [NewPressure].
type PressureSample struct {
	// Share is the part of Span in which at least one task waited for the resource ("some"), 0 to 1.
	Share float64
	// Source is the file that was read, such as "/proc/pressure/cpu".
	Source string
	// Time is when the file was read, and Span is the time since the reading before.
	Time time.Time
	Span time.Duration
	// Err says why Share is unknown now: ErrNoReading, or the failure. It is fs.ErrNotExist if the system has no
	// pressure stall information, which only Linux has. The other fields then keep the values of the last reading, at Time.
	Err error
}

func (s PressureSample) figure() (float64, error) { return s.Share, s.Err }

// A pressureMeter measures for what share of the time tasks wait for a resource.
type pressureMeter struct {
	resource string
	fsys     fs.FS
	groups   *cgroup.Folders
	folder   string // of the own group; "" if there is none
	checked  time.Time
	source   string        // the file that total is from
	total    time.Duration // stalled so far
	at       time.Time     // when total was read
}

// NewPressure returns a Sensor of the share of the time in which tasks wait for a resource: Linux's pressure stall
// information (PSI), of the process's control group in version 2, otherwise of the machine. It reads nothing yet. On a
// system without this information the share is unknown; that is not an error here.
func NewPressure(o *PressureOptions) (*Sensor[PressureSample], error) {
	if o == nil {
		o = &PressureOptions{}
	}
	switch o.Resource {
	case "cpu", "memory", "io":
	default:
		return nil, fmt.Errorf(`stats: Pressure: Resource must be "cpu", "memory" or "io", got %q`, o.Resource)
	}
	return newPressure(o.Resource, o.Interval, os.DirFS("/"))
}

func newPressure(resource string, interval time.Duration, fsys fs.FS) (*Sensor[PressureSample], error) {
	p := &pressureMeter{resource: resource, fsys: fsys, groups: cgroup.NewFolders(fsys, "")}
	return newSensor("Pressure", interval, 250*time.Millisecond, PressureSample{Err: ErrNoReading}, p.take)
}

func (p *pressureMeter) take(s *PressureSample, now time.Time) time.Time {
	p.measure(s, now)
	return now
}

func (p *pressureMeter) measure(s *PressureSample, now time.Time) {
	if limitsDue(&p.checked, now) {
		p.folder = ""
		if _, folders := p.groups.Look(); len(folders) > 0 {
			p.folder = folders[0]
		}
	}
	source, total, err := p.read()
	if err != nil {
		s.Err, p.source = fmt.Errorf("stats: Pressure: %w", err), ""
		return
	}
	span, stalled, same := now.Sub(p.at), total-p.total, source == p.source
	p.source, p.total, p.at = source, total, now
	if !same || span <= 0 || stalled < 0 {
		s.Err = ErrNoReading
		return
	}
	*s = PressureSample{Share: min(float64(stalled)/float64(span), 1), Source: "/" + source, Time: now, Span: span}
}

// read returns the time stalled so far, and the file that says so.
func (p *pressureMeter) read() (name string, total time.Duration, err error) {
	var b []byte
	if p.folder != "" {
		name = path.Join(p.folder, p.resource+".pressure")
		b, err = fs.ReadFile(p.fsys, name)
	}
	if b == nil || err != nil {
		name = path.Join("proc/pressure", p.resource)
		b, err = fs.ReadFile(p.fsys, name)
	}
	if err != nil {
		return name, 0, err
	}
	total, err = parsePressure(b)
	return name, total, err
}

var errPressure = errors.New("pressure is malformed")

// parsePressure returns the total of a line such as "some avg10=0.00 avg60=0.00 avg300=0.00 total=157", in µs.
func parsePressure(b []byte) (time.Duration, error) {
	for line := range bytes.Lines(b) {
		rest, ok := bytes.CutPrefix(line, []byte("some "))
		if !ok {
			continue
		}
		_, text, ok := bytes.Cut(rest, []byte(" total="))
		n, err := strconv.ParseUint(string(bytes.TrimSpace(text)), 10, 53)
		if !ok || err != nil {
			break
		}
		return time.Duration(n) * time.Microsecond, nil
	}
	return 0, fmt.Errorf("%w: %.60q", errPressure, b)
}
