// Postgres measures guards in front of a real PostgreSQL. An app with chi and a pool of 8 connections runs in a control
// group with 0.4 CPU. Its database runs in another with 0.8 CPU, and is the bottleneck.
//
//	go run ./bench/postgres -json postgres.json
//	go run ./bench/postgres -guards spillway -mixes mixed -loads 2 -faults none,cold -trace trace.csv
//
// It steps from half the capacity to each load, starts the app straight into three times the capacity, and stops,
// restarts and locks the database. It also sweeps fixed concurrency limits: the best of them for the same mix and load
// is the yardstick.
//
// It needs Linux, the right to make control groups, and Debian's package postgresql. If the package is missing, root
// installs it by this command. Where a requirement is missing, the command prints SKIPPED and exits with status 0. The
// database has a folder for this run alone, listens on a socket in it, and ends with this program.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"syscall"
	"time"

	"github.com/spillway-go/spillway/lab/overload"
)

func main() { os.Exit(status()) }

func status() int {
	if isApp() {
		return exit(runApp(os.Stdin, os.Stdout))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return exit(run(ctx, os.Args[1:], os.Stdout))
}

func exit(err error) int {
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return 0
	}
	fmt.Fprintln(os.Stderr, "postgres:", err)
	return 1
}

// figures are everything one invocation has measured.
type figures struct {
	Go       string    `json:"go"`
	Platform string    `json:"platform"`
	Postgres string    `json:"postgres"`
	Quota    float64   `json:"app_quota"`
	DBQuota  float64   `json:"database_quota"`
	Pool     int       `json:"pool"`
	Seconds  float64   `json:"seconds"`
	Settle   float64   `json:"settle"`
	Passes   int       `json:"passes"`
	Useful   float64   `json:"useful_ms"`
	Deadline float64   `json:"deadline_ms"`
	Loads    []load    `json:"mixes"`
	Results  []*result `json:"results"`
	Notes    []string  `json:"notes,omitempty"`
	Skipped  string    `json:"skipped,omitempty"` // why nothing was measured
}

func run(ctx context.Context, args []string, out io.Writer) error {
	s, err := parse(args, out)
	if err != nil {
		return err
	}
	f := &figures{
		Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, Quota: s.quota, DBQuota: s.dbQuota, Pool: poolSize,
		Seconds: s.each.Seconds(), Settle: s.settle.Seconds(), Passes: s.passes,
		Useful: millis(useful), Deadline: millis(deadline), Results: []*result{},
	}
	err = f.measure(ctx, s, out)
	if errors.Is(err, errSkip) {
		fmt.Fprintf(out, "\n%v\nNothing was measured.\n", err)
		f.Skipped, err = err.Error(), nil
	}
	if err != nil && ctx.Err() != nil {
		return errors.New("interrupted")
	}
	if err != nil {
		return err
	}
	if s.json == "" {
		return nil
	}
	data, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(s.json, append(data, '\n'), 0o644) //nolint:gosec // figures are no secret
}

// measure makes the rig, carries out all passes and prints a table.
func (f *figures) measure(ctx context.Context, s *settings, out io.Writer) (err error) {
	t, err := openTrace(s.trace)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	db, err := openDatabase(ctx, s.dbQuota)
	if err != nil {
		return err
	}
	defer db.close()
	group, err := overload.NewCgroup("spillway-postgres-app", s.quota)
	if err != nil {
		return fmt.Errorf("%w: no control group can be made: %w", errSkip, err)
	}
	defer group.Remove()
	_ = overload.Renice(-10) // clients that are late would flatter the guards; where this is not allowed, a note says so
	f.Postgres = db.version(ctx)
	all := &session{
		rig: &rig{settings: s, db: db, group: group, trace: t}, out: out,
		all: map[place][]*result{}, loads: map[string][]load{}, slos: map[place]time.Duration{},
	}
	fmt.Fprintf(out, "PostgreSQL %s, app with %g CPU and a pool of %d, database with %g CPU; useful within %v, given up after %v\n",
		f.Postgres, s.quota, poolSize, s.dbQuota, useful, deadline)
	if err := all.measure(ctx); err != nil {
		return err
	}
	f.Results, f.Notes = all.results(), all.notes
	for _, m := range s.mixes {
		f.Loads = append(f.Loads, usual(all.loads[m.name]))
	}
	return f.print(out)
}

// usual returns the medians of the bare app's figures.
func usual(all []load) load {
	figure := func(of func(load) float64) float64 {
		var x []float64
		for _, l := range all {
			x = append(x, of(l))
		}
		return median(x)
	}
	var capacities []float64
	for _, l := range all {
		capacities = append(capacities, l.Capacity)
	}
	return load{
		Mix:         all[0].Mix,
		Capacity:    figure(func(l load) float64 { return l.Capacity }),
		Least:       slices.Min(capacities),
		Greatest:    slices.Max(capacities),
		AppCPU:      figure(func(l load) float64 { return l.AppCPU }),
		DatabaseCPU: figure(func(l load) float64 { return l.DatabaseCPU }),
	}
}
