package overload

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/spillway-go/spillway/internal/usage"
	"github.com/spillway-go/spillway/stats"
)

// Config holds the guards and works that a program can measure.
type Config struct {
	// Guards can be chosen by -guards, in addition to none and fixed:N, which always exist.
	Guards []Guard

	// Works can be chosen by -work, in addition to those of [Works].
	Works []Work

	// Transport carries requests to the server. If it is nil, it is net/http, with guards that wrap handlers.
	Transport Transport

	// Metrics returns a handler of the guard's metrics, which -live serves at /metrics. If it is nil, -live serves the page alone.
	Metrics func(map[string]stats.Source) http.Handler

	// About says what the program shows; -h prints it first. If About is empty, -h describes an overload in general.
	About string

	// DefaultGuards is the default of -guards. If it is empty, that is "none".
	DefaultGuards string

	capacity float64 // requests per second that the bare server answers, in the server process
}

// Main is the whole program: it reads the flags, runs, prints, and returns the exit status. The server process is this
// program started once more, so the caller must come here before it does anything else.
func Main(c Config) int {
	if IsChild() {
		if err := c.runChild(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return 0
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := c.Run(ctx, os.Args[1:], os.Stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// Run does the work of [Main] in the parent process, with the given arguments and output.
func (c *Config) Run(ctx context.Context, args []string, out io.Writer) error {
	o, err := c.parse(args, out)
	if err != nil {
		return err
	}
	p := newProgress(out)
	run, err := c.measure(ctx, o, p)
	if err != nil {
		return err
	}
	writeTable(out, run)
	p.head("%s", run.lead())
	if o.json != "" {
		if err := writeJSON(o.json, run); err != nil {
			return err
		}
	}
	name, err := writeReport(o.report, run)
	if err == nil && name != "" {
		p.line("report, to open in a browser: %s", name)
	}
	return err
}

// options are the flags, parsed and checked.
type options struct {
	Plan

	capacityTime time.Duration // how long the capacity is counted at the beginning

	json   string
	report string
	live   string // address of the live page; empty for none
}

func (c *Config) parse(args []string, out io.Writer) (*options, error) {
	o := &options{capacityTime: capacityTime}
	fs := usage.New("overload", cmp.Or(c.About, "overload shows the useful work of a real server far beyond its capacity."), out)
	guards := c.DefaultGuards
	if guards == "" {
		guards = "none"
	}
	var known []string
	for _, g := range c.Guards {
		known = append(known, g.Name)
	}
	var works []string
	for _, w := range append(Works(), c.Works...) {
		works = append(works, "\n"+w.Name+": "+w.About)
	}
	loads := fs.String("loads", "0.5,0.9,2,5,10,0.5", "loads to run in order, as multiples of the capacity")
	fs.StringVar(&guards, "guards", guards, "guards to run in order: none, fixed:N, rate:F, "+strings.Join(known, ", "))
	seconds := fs.Float64("seconds", 6, "how long each load lasts, in seconds")
	settle := fs.Float64("settle", 2, "how long the light load before each step lasts, in seconds; 0 leaves it out")
	fs.StringVar(&o.Work, "work", "cpu", "what the server does for a request:"+strings.Join(works, ""))
	fs.Float64Var(&o.Quota, "quota", 0.4, "how many CPUs the server may use, through a control group; 0 sets no limit")
	fs.Uint64Var(&o.Seed, "seed", 1, "seed of the arrival times")
	fs.BoolVar(&o.Recheck, "recheck", true, "measure the capacity again at the end, to show how steady the machine was")
	fs.StringVar(&o.report, "report", reportTemp, "write the page with the charts to this file; temp makes one among the temporary files, none leaves it out")
	fs.StringVar(&o.live, "live", "", "show the guarded server's own live page at this `ADDRESS`, such as 127.0.0.1:8081")
	fs.StringVar(&o.json, "json", "", "write the figures to this file")
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	if fs.NArg() > 0 {
		return nil, fmt.Errorf("overload: unexpected argument %q", fs.Arg(0))
	}
	o.Guards = strings.Split(guards, ",")
	o.Each = time.Duration(*seconds * float64(time.Second))
	o.Settle = time.Duration(*settle * float64(time.Second))
	var err error
	if o.Loads, err = ParseLoads(*loads); err != nil {
		return nil, err
	}
	if err := checkLive(o.live); err != nil {
		return nil, err
	}
	return o, o.check(c)
}

// measure carries out the whole run.
func (c *Config) measure(ctx context.Context, o *options, p *progress) (*Run, error) {
	work, err := c.work(o.Work)
	if err != nil {
		return nil, err
	}
	r := &runner{config: c, opts: o, work: work, progress: p}
	r.greet()
	run := r.describe()
	if o.Settle > 0 {
		run.Notes = append(run.Notes, fmt.Sprintf("each step up begins from %g times the capacity, held for %v", lightLoad, o.Settle))
	}
	if o.Quota > 0 {
		if r.group, err = NewCgroup("spillway-overload", o.Quota); err != nil {
			run.Quota = 0
			run.note(p, "no control group could be made (%v): the server has GOMAXPROCS=1 and shares its core with whoever runs there", err)
		} else {
			defer r.group.Remove()
			run.note(p, "the server runs with GOMAXPROCS=1 in a control group of its own, limited to %g CPU", o.Quota)
		}
	}
	if err := Renice(-10); err == nil {
		defer func() { _ = Renice(0) }() // back to where it was
		run.note(p, "the generator runs at niceness -10")
	}
	if err := r.all(ctx, run); err != nil {
		return nil, err
	}
	return run, nil
}

func (r *runner) all(ctx context.Context, run *Run) (err error) {
	if r.work.Capacity == 0 {
		r.progress.line("measuring the capacity of the bare server")
	}
	if r.capacity, err = r.capacityOf(ctx, r.opts.capacityTime); err != nil {
		return err
	}
	if r.capacity < 1 {
		return fmt.Errorf("overload: the bare server answers %.2f requests a second: nothing can be measured with that", r.capacity)
	}
	run.Capacity = r.capacity
	r.progress.line("capacity: %.0f requests per second\n", r.capacity)
	for _, name := range r.opts.Guards {
		results, series, err := r.guard(ctx, name)
		if err != nil {
			return err
		}
		run.Results = append(run.Results, results...)
		run.Series = append(run.Series, series)
	}
	if r.opts.Recheck {
		if run.CapacityAfter, err = r.capacityOf(ctx, recheckTime); err != nil {
			return err
		}
		if moved := run.CapacityAfter/run.Capacity - 1; math.Abs(moved) > 0.1 {
			run.note(r.progress, "the capacity has moved by %+.0f %% during the run: the machine was not steady, take the figures with care", 100*moved)
		}
	}
	run.warn(r.progress)
	return nil
}

func (r *runner) describe() *Run {
	return &Run{
		Work: r.work.Name, WorkAbout: r.work.About,
		Conditions: Conditions{
			Quota: r.opts.Quota, Seconds: r.opts.Each.Seconds(), Seed: r.opts.Seed,
			SLOMillis: millis(r.work.SLO), DeadlineMs: millis(r.work.Deadline),
			Go: runtime.Version(), Platform: fmt.Sprintf("%s/%s, %d CPUs", runtime.GOOS, runtime.GOARCH, runtime.NumCPU()),
		},
	}
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func (run *Run) note(p *progress, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	run.Notes = append(run.Notes, text)
	p.text("%s", text)
}

// greet says what the run does, how long it takes, and what to look at.
func (r *runner) greet() {
	p := r.progress
	p.head("A real server gets %s times the load that it can carry, once for each guard: %s.",
		listed(r.opts.Loads, "%g"), listed(r.opts.Guards, "%s"))
	p.text("This takes about %v; Ctrl-C ends it. A request takes %s.", r.duration(), r.work.About)
	p.text("Look at goodput: answers within %.0f ms, as a share of the capacity. Beyond the capacity, at more than 1x, the bare server (none) "+
		"loses it, and a good guard keeps it near 100%%. At the end of a line is the number of requests inside the server, and the guard's "+
		"limit after a slash.", millis(r.work.SLO))
	if r.opts.live != "" {
		p.text("While a server is guarded, its live page is http://%s/", r.opts.live)
	}
	p.line("")
}

// listed joins values as a sentence does.
func listed[T any](values []T, format string) string {
	var b strings.Builder
	for i, v := range values {
		switch {
		case i > 0 && i == len(values)-1:
			b.WriteString(" and ")
		case i > 0:
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, format, v)
	}
	return b.String()
}

// warn reports where the generator, not the server, may have caused the figures.
func (run *Run) warn(p *progress) {
	late, worst := 0, Result{}
	for _, r := range run.Results {
		if r.SendLagP99 > 20 {
			late++
		}
		if r.SendLagP99 > worst.SendLagP99 {
			worst = r
		}
		if r.Unsent > 0 {
			run.note(p, "%s at %gx: %d requests were not sent, %d were open already", r.Guard, r.Load, r.Unsent, maxInFlight)
		}
	}
	if late > 0 {
		run.note(p, "in %d of %d loads the generator was more than 20 ms late (p99), and %.0f ms at worst (%s at %gx)",
			late, len(run.Results), worst.SendLagP99, worst.Guard, worst.Load)
	}
}

func writeJSON(name string, run *Run) error {
	data, err := json.Marshal(run)
	if err != nil {
		return err
	}
	return os.WriteFile(name, append(data, '\n'), 0o644) //nolint:gosec // figures are no secret
}
