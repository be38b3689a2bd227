package policytest

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/spillway-go/spillway"
)

// A recorder stands in for a *testing.T and remembers which cases failed and which were skipped.
type recorder struct {
	t       *testing.T
	name    string
	failed  map[string]string
	skipped map[string]string
	ran     *[]string
}

func (r *recorder) Helper() {}

func (r *recorder) Error(args ...any) { r.failed[r.name] = fmt.Sprint(args...) }

func (r *recorder) Skip(args ...any) { r.skipped[r.name] = fmt.Sprint(args...) }

func (r *recorder) run(name string, f func(tb)) {
	*r.ran = append(*r.ran, name)
	sub := *r
	sub.name = name
	f(&sub)
}

func (r *recorder) bubble(f func()) {
	synctest.Test(r.t, func(*testing.T) { f() })
}

// record runs the suite and returns what it said.
func record(t *testing.T, newPolicy func() spillway.Policy, o *Options) *recorder {
	r := &recorder{t: t, failed: map[string]string{}, skipped: map[string]string{}, ran: new([]string)}
	runSuite(r, newPolicy, o)
	return r
}

// failedCases returns the names of the cases that failed, sorted.
func (r *recorder) failedCases() []string {
	names := slices.Sorted(maps.Keys(r.failed))
	return slices.DeleteFunc(names, func(s string) bool { return s == "" })
}
