package rules

import (
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/isnil"
	"github.com/spillway-go/spillway/shadow"
	"github.com/spillway-go/spillway/stats"
)

// A Stage is a policy that tries new numbers beside those in force, on live traffic. It is made by [NewStage] and takes the
// place of its policy in a gate. [Of] makes it a Target, to which a document can give two sets of numbers:
//
//	{"rules": {"api": {"MaxLimit": 300}}, "stage": {"enforce": 0.1, "rules": {"api": {"MaxLimit": 400}}}}
//
// The numbers of stage decide about the fraction enforce of the requests, and the others about the rest. A field that stage
// omits is as in rules. [shadow.Shadow.Stats] has the decisions and the wrong ones of both: element 0 is about the numbers in
// force, and 1 about those of stage. Without stage in the document, both policies have the numbers of rules, and the first one
// decides about all requests.
type Stage struct {
	*shadow.Shadow
	inForce, next spillway.Policy
}

// NewStage returns a Stage of two policies that were made with the same options. The second one sees each request that the
// first one admits, and costs as much again. Neither may queue, and no other gate may have them.
func NewStage(inForce, next spillway.Policy) (*Stage, error) {
	if isnil.Is(inForce) || isnil.Is(next) || reflect.TypeOf(inForce) != reflect.TypeOf(next) {
		return nil, fmt.Errorf("rules: NewStage: there must be two policies of one type, got %T and %T", inForce, next)
	}
	if t := reflect.TypeOf(inForce); t.Comparable() && inForce == next {
		return nil, errors.New("rules: NewStage: the two policies must not be the same one")
	}
	s := &Stage{shadow.New(inForce, next), inForce, next}
	return s, s.Enforce(1)
}

// Metrics yields the figures of the policy in force like those of a policy without a Stage, and those of the other one and of
// the comparison with the label shadow.
func (s *Stage) Metrics() iter.Seq[stats.Metric] {
	return func(yield func(stats.Metric) bool) {
		for m := range s.Shadow.Metrics() {
			if m.Of != nil && m.Of == any(s.inForce) {
				m.Labels = slices.DeleteFunc(slices.Clone(m.Labels), func(l stats.Label) bool { return l.Name == "shadow" })
			}
			if !yield(m) {
				return
			}
		}
	}
}

var (
	_ spillway.Policy = (*Stage)(nil)
	_ stats.Source    = (*Stage)(nil)
)
