package upstream

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"math"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/orca"
	"github.com/spillway-go/spillway/stats"
)

// A backend is one server of the protected service.
type backend struct {
	name   string // as in the file
	scheme string
	host   string // host and port, or a stand-in for a Unix socket
	socket string // path of a Unix socket, or ""
	key    string // for the breakers
	rt     http.RoundTripper
	start  start
	meter  meter
	report report

	down         atomic.Bool  // by active checks
	ejectedUntil atomic.Int64 // by its breaker, in ns of the Unix time; 0 while it is closed
	probed       atomic.Int64 // when it last got a request while its breaker was not closed
	trouble      share        // of the requests that it refused or failed
	troubledAt   atomic.Int64 // when it last did, in ns of the Unix time
	answers      [4]atomic.Int64
	silentUntil  atomic.Int64 // no error is logged before, in ns of the Unix time
}

// The indexes of answers.
const (
	answered = iota
	refusal
	failed
	unreached
)

func newBackends(urls []string) ([]*backend, error) {
	var list []*backend
	for i, text := range urls {
		b := &backend{name: text, key: text}
		if path, ok := strings.CutPrefix(text, "unix:"); ok {
			b.scheme, b.socket, b.host = "http", path, fmt.Sprintf("unix-%d", i)
		} else {
			u, err := url.Parse(text)
			if err != nil {
				return nil, fmt.Errorf("backend.urls[%d]: %w", i, err)
			}
			b.scheme, b.host = u.Scheme, u.Host
			if u.Scheme == "h2c" {
				b.scheme = "http"
			}
		}
		list = append(list, b)
	}
	return list, nil
}

// complainEvery is how often an error of a backend is logged.
const complainEvery = 10 * time.Second

// complain logs why a request got no answer, at most once in complainEvery.
func (b *backend) complain(logger *slog.Logger, now time.Time, err error) {
	until, at := b.silentUntil.Load(), now.UnixNano()
	if at >= until && b.silentUntil.CompareAndSwap(until, at+int64(complainEvery)) {
		logger.Warn("spillwayd: a backend gave no answer", slog.String("backend", b.name), slog.String("error", err.Error()))
	}
}

// address makes b the target of r.
func (b *backend) address(r *http.Request, rename bool) {
	r.URL.Scheme, r.URL.Host = b.scheme, b.host
	if rename {
		r.Host = b.host
		if b.socket != "" {
			r.Host = "localhost"
		}
	}
}

// probeEvery is the least time between two requests to a backend whose breaker is not closed again.
const probeEvery = 100 * time.Millisecond

// takes reports whether the breaker of b lets a request through, as far as it is known without asking it.
func (b *backend) takes(now time.Time) bool {
	until := b.ejectedUntil.Load()
	if until == 0 {
		return true
	}
	at := now.UnixNano()
	return at >= until && at-b.probed.Load() >= int64(probeEvery)
}

// taken notes that b was chosen. It reports false if another request has just become the probe of an ejected backend.
func (b *backend) taken(now time.Time) bool {
	if b.ejectedUntil.Load() == 0 {
		return true
	}
	last, at := b.probed.Load(), now.UnixNano()
	return at-last >= int64(probeEvery) && b.probed.CompareAndSwap(last, at)
}

// troubleLife is how long trouble counts after the last of it. Then a backend is tried like the others.
const troubleLife = time.Second

// load returns a figure to compare backends by: the requests in flight, weighted by what the backend says of its load and by how many
// requests it refused or failed lately. Without that, a backend that fails at once would get the most requests.
func (b *backend) load(now time.Time) float64 {
	const least, dislike = 0.25, 9
	weight := 1.0
	if l, ok := b.report.get(now); ok {
		weight = least + max(l.CPU, l.Application)
	}
	if now.UnixNano()-b.troubledAt.Load() < int64(troubleLife) {
		weight *= 1 + dislike*b.trouble.value()
	}
	return (float64(b.meter.inFlight.Load()) + 1) * weight
}

// answered notes an answer to a request that was sent at now.
func (b *backend) answered(r *http.Request, res *http.Response, err error, now time.Time) {
	result := answered
	switch {
	case err != nil && (r.Context().Err() != nil || spillway.RejectionOf(err) != nil || Blamed(r)): // no fault of the backend
		return
	case err != nil:
		result = unreached
	case refused(res):
		result = refusal
	case res.StatusCode >= http.StatusInternalServerError && !Blamed(r):
		result = failed
	}
	b.answers[result].Add(1)
	if result == answered {
		b.trouble.add(0)
	} else {
		b.trouble.add(1)
		b.troubledAt.Store(now.UnixNano())
	}
	if res == nil {
		return
	}
	if field, given := res.Header[orca.Header]; given && b.report.due(now) {
		if l, ok := orca.Parse(field); ok {
			b.report.set(l, now)
		}
	}
}

func (b *backend) metrics() iter.Seq[stats.Metric] {
	return func(yield func(stats.Metric) bool) {
		up := 1.0
		if b.down.Load() || b.ejectedUntil.Load() != 0 {
			up = 0
		}
		label := stats.Label{Name: "backend", Value: b.name}
		gauge := func(name, unit, help string, v float64) bool {
			return yield(stats.Metric{Name: name, Help: help, Unit: unit, Kind: stats.KindGauge, Labels: []stats.Label{label}, Value: v})
		}
		if !gauge("spillwayd.backend.up", "", "1 while the backend takes requests.", up) ||
			!gauge("spillwayd.backend.in_flight", "{request}", "Requests under way, if there are several backends.",
				float64(b.meter.inFlight.Load())) {
			return
		}
		for i, result := range []string{"answered", "refused", "failed", "unreached"} {
			if !yield(stats.Metric{
				Name: "spillwayd.backend.requests", Help: "Requests sent, by what came back.", Unit: "{request}", Kind: stats.KindCounter,
				Labels: []stats.Label{label, {Name: "result", Value: result}}, Value: float64(b.answers[i].Load()),
			}) {
				return
			}
		}
		if l, ok := b.report.get(time.Now()); ok {
			if !gauge("spillwayd.backend.cpu", "1", "CPU usage that the backend reports.", l.CPU) {
				return
			}
			gauge("spillwayd.backend.application", "1", "Application utilization that the backend reports.", l.Application)
		}
	}
}

// A meter is a policy that counts the requests in flight and refuses none.
type meter struct{ inFlight atomic.Int64 }

// Admit counts a request.
func (m *meter) Admit(context.Context, spillway.Request) (spillway.Ticket, error) {
	m.inFlight.Add(1)
	return 0, nil
}

// Done ends a request.
func (m *meter) Done(spillway.Request, spillway.Ticket, spillway.Result) { m.inFlight.Add(-1) }

// A report is the last load that a backend reported.
type report struct {
	at               atomic.Int64 // ns of the Unix time
	cpu, application atomic.Uint64
}

const (
	reportEvery = 20 * time.Millisecond // more reports are not read: backends render a new one each 100 ms
	reportLife  = 3 * time.Second
)

func (r *report) due(now time.Time) bool { return now.UnixNano()-r.at.Load() >= int64(reportEvery) }

func (r *report) set(l orca.Load, now time.Time) {
	r.cpu.Store(math.Float64bits(l.CPU))
	r.application.Store(math.Float64bits(l.Application))
	r.at.Store(now.UnixNano())
}

func (r *report) get(now time.Time) (orca.Load, bool) {
	if now.UnixNano()-r.at.Load() > int64(reportLife) {
		return orca.Load{}, false
	}
	return orca.Load{CPU: math.Float64frombits(r.cpu.Load()), Application: math.Float64frombits(r.application.Load())}, true
}

// A share is a moving average of 0 and 1 over some 32 answers.
type share struct{ bits atomic.Uint64 }

func (s *share) value() float64 { return math.Float64frombits(s.bits.Load()) }

func (s *share) add(v float64) {
	const weight, nothing = 1.0 / 32, 1e-4
	for {
		old := s.bits.Load()
		was := math.Float64frombits(old)
		if v == was {
			return
		}
		is := was + (v-was)*weight
		if is < nothing {
			is = 0
		}
		if s.bits.CompareAndSwap(old, math.Float64bits(is)) {
			return
		}
	}
}
