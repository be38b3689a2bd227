package limiter

import (
	"errors"
	"fmt"

	"github.com/spillway-go/spillway/internal/isnil"
	"github.com/spillway-go/spillway/internal/name"
	"github.com/spillway-go/spillway/internal/rejections"
)

// A Rule says what a limit allows, as plain data: a [Bucket], [FixedWindow], [SlidingWindow], [SlidingLog], [WarmUp],
// [Shaper], [Concurrency] or [Queue], or the limiter of an [XTime]. [New] makes one limit from it, and [NewKeyed] makes one for each key. A field
// that is 0 stands for its default.
type Rule interface {
	// build returns a limit, or an error that names the invalid field.
	build() (Limiter, error)
	// keyed returns a set of limits, one for each key.
	keyed(maxKeys int) (keyedLimits, error)
}

// New returns an unused limit for a rule. The error names the invalid field and its value.
func New(rule Rule) (Limiter, error) {
	if isnil.Is(rule) {
		return nil, errors.New("limiter: New: rule must be set, got nil")
	}
	return rule.build()
}

// A plan is a valid rule of tokens, from which limits are made.
type plan[S any] struct {
	rule     Rule   // with its defaults
	kind     string // in errors
	name     string // in rejections
	reason   string // of its refusals
	room     bool   // it refuses for lack of room, not because the caller used up its quota
	calendar bool   // the core reads the wall clock, which ns since the base do not show
	core     core[S]
}

// A planner is a Rule of tokens, with states S.
type planner[S any] interface {
	plan() (plan[S], error)
}

func (p *plan[S]) rejections() *rejections.Set { return rejections.New(p.name, p.reason, !p.room) }

// next returns the plan of a rule that replaces p while the limit runs.
func (p *plan[S]) next(rule Rule) (plan[S], error) {
	r, ok := rule.(planner[S])
	if !ok || isnil.Is(rule) {
		return plan[S]{}, fmt.Errorf("limiter: %s: Tune: rule must be of the same kind, got %T", p.kind, rule)
	}
	next, err := r.plan()
	if err != nil {
		return next, err
	}
	if err := sameName(p.kind, p.name, next.name); err != nil {
		return next, err
	}
	return next, next.core.follows(p.core)
}

// sameName returns an error if a running limit would get another name, because metrics and header fields show the name.
func sameName(kind, old, next string) error {
	if next != old {
		return fmt.Errorf("limiter: %s: Tune: Name must stay %q, got %q", kind, old, next)
	}
	return nil
}

// named returns the name given to a limit, or its default, if the name is fit for metrics and header fields.
func named(kind, given, byDefault string) (string, error) {
	return name.Or("limiter: "+kind, given, byDefault)
}
