package overload

import (
	"math"
	"slices"
	"time"
)

// bucket is the grain of the recorded series.
const bucket = 100 * time.Millisecond

// A Run holds all measurements of one invocation. Latencies are in milliseconds, shares are fractions of the requests
// sent, and goodput is a fraction of the capacity.
type Run struct {
	Conditions

	Capacity      float64  `json:"capacity_rps"`                 // of the bare server, measured before
	CapacityAfter float64  `json:"capacity_after_rps,omitempty"` // and after, to show how steady the machine was
	Work          string   `json:"work"`
	WorkAbout     string   `json:"work_about"`
	Notes         []string `json:"notes,omitempty"`
	Results       []Result `json:"results"`
	Series        []Series `json:"series,omitempty"`
}

// Conditions describe the setup under which the figures of a run were measured.
type Conditions struct {
	Quota      float64 `json:"quota"` // CPUs the server may use; 0 means no limit but GOMAXPROCS=1
	Seconds    float64 `json:"seconds"`
	Seed       uint64  `json:"seed"`
	SLOMillis  float64 `json:"slo_ms"`
	DeadlineMs float64 `json:"deadline_ms"`
	Go         string  `json:"go"`
	Platform   string  `json:"platform"`
}

// A Result holds the figures of one guard under one load. Fields without All cover the last half of the load. Fields
// with All cover the whole load, including the step at its beginning.
type Result struct {
	Guard   string  `json:"guard"`
	Load    float64 `json:"load"` // as a multiple of the capacity
	Offered float64 `json:"offered_rps"`

	Goodput    float64  `json:"goodput"`
	P50        *float64 `json:"p50_ms"` // of those admitted and answered, null if there were none
	P99        *float64 `json:"p99_ms"`
	RefusedP99 *float64 `json:"refused_p99_ms"`
	Shed       float64  `json:"shed"`
	Timeouts   float64  `json:"timeouts"`
	Failed     float64  `json:"failed"`

	GoodputAll    float64  `json:"goodput_all"`
	Goodput1s     float64  `json:"goodput_first1s"`
	Goodput5s     float64  `json:"goodput_first5s"`
	P99All        *float64 `json:"p99_all_ms"`
	RefusedP99All *float64 `json:"refused_p99_all_ms"`
	ShedAll       float64  `json:"shed_all"`
	TimeoutsAll   float64  `json:"timeouts_all"`

	FirstRefusal *float64 `json:"first_refusal_s"` // when the first refusal reached a client, from the start of the load
	FirstMiss    *float64 `json:"first_miss_s"`    // send time of the first request not answered in time
	Recovered    *float64 `json:"recovered_s"`     // after the load, back at 0.5: time until everything is as before; null if that did not happen or was not tried

	SendLagP99 float64 `json:"send_lag_p99_ms"` // how far the generator itself was behind
	Unsent     int     `json:"unsent,omitempty"`
	Start      float64 `json:"start_s"` // in the guard's series
	End        float64 `json:"end_s"`
	Fresh      bool    `json:"fresh,omitempty"` // the previous server had not recovered, so this load began on a new one
}

// A Series is the course of one guard's run over time.
type Series struct {
	Guard  string         `json:"guard"`
	Points []Point        `json:"points"`
	Server []ServerSample `json:"server"`
	Spans  []Span         `json:"spans"`

	stretches []*stretch
}

// A Point counts the requests whose intended send time lies in the 100 ms that begin at T.
type Point struct {
	T        float64  `json:"t"`
	Sent     int      `json:"sent"`
	Good     int      `json:"good"`
	Late     int      `json:"late,omitempty"`
	Refused  int      `json:"refused,omitempty"`
	Timeouts int      `json:"timeouts,omitempty"`
	Failed   int      `json:"failed,omitempty"`
	P50      *float64 `json:"p50_ms,omitempty"`
	P99      *float64 `json:"p99_ms,omitempty"`
}

// A Span is a stretch of constant load.
type Span struct {
	Load   float64 `json:"load"`
	Start  float64 `json:"start_s"`
	End    float64 `json:"end_s"`
	Settle bool    `json:"settle,omitempty"` // between two loads, not measured
	Fresh  bool    `json:"fresh,omitempty"`  // a new server began here
}

// figures are the figures of a set of requests.
type figures struct {
	sent, good, answered, refused, timeouts, failed, unsent int
	latencies, refusals                                     []time.Duration // sorted
	lags                                                    []time.Duration
}

// between collects the samples that were to be sent in [from, to). The samples are in the order of their send times.
func between(samples []sample, from, to time.Duration) figures {
	var f figures
	for i := range samples {
		s := &samples[i]
		if s.at < from || s.at >= to {
			continue
		}
		f.add(s)
	}
	slices.Sort(f.latencies)
	slices.Sort(f.refusals)
	slices.Sort(f.lags)
	return f
}

func (f *figures) add(s *sample) {
	f.sent++
	f.lags = append(f.lags, s.lag)
	switch s.kind {
	case answered:
		f.answered++
		f.latencies = append(f.latencies, s.latency)
		if s.good() {
			f.good++
		}
	case refused:
		f.refused++
		f.refusals = append(f.refusals, s.latency)
	case timeout:
		f.timeouts++
	case unsent:
		f.unsent++
		f.failed++
	default:
		f.failed++
	}
}

// share returns n as a fraction of the requests sent.
func (f *figures) share(n int) float64 {
	if f.sent == 0 {
		return 0
	}
	return float64(n) / float64(f.sent)
}

// quantile returns the q-quantile of sorted in milliseconds by the nearest-rank rule, or nil if it is empty.
func quantile(sorted []time.Duration, q float64) *float64 {
	if len(sorted) == 0 {
		return nil
	}
	i := int(math.Ceil(q*float64(len(sorted)))) - 1
	ms := float64(sorted[max(i, 0)]) / float64(time.Millisecond)
	return &ms
}

// points counts the samples by buckets up to end.
func points(samples []sample, end time.Duration) []Point {
	out := make([]Point, 0, end/bucket+1)
	i := 0
	for from := time.Duration(0); from < end; from += bucket {
		j := i
		for j < len(samples) && samples[j].at < from+bucket {
			j++
		}
		f := between(samples[i:j], from, from+bucket)
		i = j
		out = append(out, Point{
			T: from.Seconds(), Sent: f.sent, Good: f.good, Late: f.answered - f.good,
			Refused: f.refused, Timeouts: f.timeouts, Failed: f.failed,
			P50: quantile(f.latencies, 0.5), P99: quantile(f.latencies, 0.99),
		})
	}
	return out
}
