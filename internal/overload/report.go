package overload

import (
	"iter"
	"math/rand/v2"
	"time"

	"github.com/spillway-go/spillway/internal/periodic"
	"github.com/spillway-go/spillway/stats"
)

const (
	interval = 100 * time.Millisecond // between two reports
	valid    = 2 * time.Second        // of a report that asks for something
	allClear = 10 * time.Second       // how long one is repeated after that; it is valid as long
	sample   = 16                     // one in so many answers of a calm server has a report
)

// A Report is one report. It is shared, and never modified.
type Report struct {
	Value   []string            // of the field
	Trailer map[string][]string // the same for gRPC
	recent  bool                // clients may hold something back
}

// A Reporter renders the field for a server's clients, once per interval. It is made by [NewReporter]. Its methods may be
// called concurrently.
type Reporter struct {
	source  func() iter.Seq[stats.Metric]
	last    *periodic.Value[*Report]
	advice  Advice
	overrun time.Time // when clients last had to hold something back
}

// NewReporter returns a Reporter of the gate and the policies whose metrics source yields.
func NewReporter(source func() iter.Seq[stats.Metric]) *Reporter {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	src := make([]byte, 8)
	for i := range src {
		src[i] = letters[rand.IntN(len(letters))]
	}
	r := &Reporter{source: source, advice: Advice{Src: string(src)}}
	r.last = periodic.New(interval, r.next)
	return r
}

// Report returns the present report, for a refusal. It allocates nothing unless it renders one.
func (r *Reporter) Report(now time.Time) *Report { return r.last.At(now) }

// Sometimes returns the present report for an answer that is not a refusal, or nil if it needs none. While clients hold
// something back, and for a while after that, each answer needs one; otherwise one in 16.
func (r *Reporter) Sometimes(now time.Time) *Report {
	if report := r.Report(now); report.recent || rand.Uint32()%sample == 0 {
		return report
	}
	return nil
}

// next renders the report at now.
func (r *Reporter) next(now time.Time) *Report {
	a := &r.advice
	a.Seq++
	a.Level, a.Reduce = 0, 0
	level := 0.0
	for m := range r.source() {
		switch {
		case m.Label("shadow") != "":
		case m.Name == "spillway.shedder.hold_back_at":
			level = m.Value
		case m.Name == "spillway.shedder.hold_back":
			if m.Value > 0 && (a.Reduce == 0 || int64(level) > a.Level || int64(level) == a.Level && m.Value > a.Reduce) {
				a.Level, a.Reduce = int64(level), m.Value
			}
		}
	}
	a.Valid = allClear
	if a.Reduce > 0 {
		a.Valid, r.overrun = valid, now
	}
	value := []string{a.value()}
	return &Report{
		Value: value, Trailer: map[string][]string{Key: value}, recent: !r.overrun.IsZero() && now.Sub(r.overrun) < allClear,
	}
}
