package overload

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/spillway-go/spillway/stats"
)

// A Guard is one way to protect the server, to be measured against the others.
type Guard struct {
	// Name is the name of the guard in the -guards flag and the results.
	Name string

	// Wrap puts the guard around the handler that does the work. It runs in the server process, after the process has
	// been moved to its control group. The StatsFunc may be nil if the guard has nothing to show. A Transport other
	// than net/http uses only the Name and does not call Wrap.
	Wrap func(http.Handler) (http.Handler, StatsFunc, error)
}

// A StatsFunc returns the figures of a guard at this moment. It is called ten times a second, by one goroutine.
type StatsFunc func() View

// A View holds the figures of a guard at one moment. A nil field is unknown, or the guard does not have this figure.
type View struct {
	CPURaw      *float64 `json:"cpu_raw,omitempty"`      // last reading, as a fraction of what the process may use
	CPUSmoothed *float64 `json:"cpu_smoothed,omitempty"` // the same, smoothed
	Limit       *float64 `json:"limit,omitempty"`        // how many requests it would admit at once
	InFlight    *float64 `json:"in_flight,omitempty"`    // how many it has let in that have not ended
	Overloaded  *bool    `json:"overloaded,omitempty"`
	Reason      string   `json:"reason,omitempty"` // why it considers the server overloaded, or why it refused last
	Admitted    *int64   `json:"admitted,omitempty"`
	Refused     *int64   `json:"refused,omitempty"`

	// Source feeds the live page of -live; it may be nil.
	Source stats.Source `json:"-"`

	// Extra holds further figures of this guard by name, such as a learned latency.
	Extra map[string]float64 `json:"extra,omitempty"`
}

// Known returns a pointer to v, for the fields of a [View].
func Known[T any](v T) *T { return &v }

// None stands for no guard: the bare server.
func None() Guard {
	return Guard{Name: "none", Wrap: func(h http.Handler) (http.Handler, StatsFunc, error) { return h, nil, nil }}
}

// fixedPrefix stands before the limit in the name of a Fixed guard.
const fixedPrefix = "fixed:"

// Fixed is a guard that refuses requests above limit in flight with 503. With the best limit for a work, it is the
// yardstick for adaptive guards.
func Fixed(limit int) Guard {
	return Guard{Name: fixedPrefix + strconv.Itoa(limit), Wrap: func(h http.Handler) (http.Handler, StatsFunc, error) {
		if limit < 1 {
			return nil, nil, fmt.Errorf("overload: fixed: limit must be at least 1, got %d", limit)
		}
		f := &fixed{next: h, limit: int64(limit)}
		return f, f.view, nil
	}}
}

// FixedLimit returns the N of a guard with the name fixed:N, if it is one.
func FixedLimit(name string) (limit int, ok bool) {
	n, ok := strings.CutPrefix(name, fixedPrefix)
	if !ok {
		return 0, false
	}
	limit, err := strconv.Atoi(n)
	return limit, err == nil && limit >= 1
}

type fixed struct {
	next              http.Handler
	limit             int64
	inFlight          atomic.Int64
	admitted, refused atomic.Int64
}

func (f *fixed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer f.inFlight.Add(-1)
	if f.inFlight.Add(1) > f.limit {
		f.refused.Add(1)
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	f.admitted.Add(1)
	f.next.ServeHTTP(w, r)
}

func (f *fixed) view() View {
	return View{
		Limit:    Known(float64(f.limit)),
		InFlight: Known(float64(f.inFlight.Load())),
		Admitted: Known(f.admitted.Load()),
		Refused:  Known(f.refused.Load()),
	}
}

// guard finds a guard by name: none, fixed:N, rate:F, or one of c.Guards.
func (c *Config) guard(name string) (Guard, error) {
	if name == "none" {
		return None(), nil
	}
	if strings.HasPrefix(name, fixedPrefix) {
		limit, ok := FixedLimit(name)
		if !ok {
			return Guard{}, fmt.Errorf("overload: guard %q: the limit must be a number of at least 1", name)
		}
		return Fixed(limit), nil
	}
	if g, ok, err := c.rateOf(name); ok {
		return g, err
	}
	known := []string{"none", "fixed:N", "rate:F"}
	for _, g := range c.Guards {
		if g.Name == name {
			return g, nil
		}
		known = append(known, g.Name)
	}
	return Guard{}, fmt.Errorf("overload: no guard %q; there are %s", name, strings.Join(known, ", "))
}
