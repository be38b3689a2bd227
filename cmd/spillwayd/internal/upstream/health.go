package upstream

import (
	"context"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"time"
)

// check asks b for its health until ctx ends.
func (p *Pool) check(ctx context.Context, b *backend) {
	h := p.o.Health
	failures, successes := 0, 0
	wait := time.NewTimer(rand.N(h.Every)) // so that the backends are not asked all at once
	defer wait.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-wait.C:
		}
		err := p.ask(ctx, b)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			failures, successes = 0, successes+1
			if successes >= h.Successes && b.down.CompareAndSwap(true, false) {
				p.logger.Info("spillwayd: backend is healthy again", slog.String("backend", b.name))
				p.count()
			}
		default:
			failures, successes = failures+1, 0
			if failures >= h.Failures && b.down.CompareAndSwap(false, true) {
				p.logger.Warn("spillwayd: backend is not healthy", slog.String("backend", b.name), slog.String("error", err.Error()))
				p.count()
			}
		}
		wait.Reset(h.Every)
	}
}

// count counts the backends that take requests. It notices when more are down than may be ejected. Then the checks say more about the
// network or their path than about the backends, and requests go to all of them.
func (p *Pool) count() {
	p.counting.Lock()
	defer p.counting.Unlock()
	down, ejected, out := 0, 0, 0
	for _, b := range p.backends {
		isDown, isEjected := b.down.Load(), b.ejectedUntil.Load() != 0
		if isDown {
			down++
		}
		if isEjected {
			ejected++
		}
		if isDown || isEjected {
			out++
		}
	}
	allDown := float64(down) > max(1, p.o.Eject.Share*float64(len(p.backends))) || down == len(p.backends)
	p.allDown.Store(allDown)
	if allDown { // the checks do not count
		out = ejected
	}
	p.up.Store(int64(max(1, len(p.backends)-out)))
}

// A statusError is the status of a check that failed.
type statusError string

func (e statusError) Error() string { return "it answered " + string(e) }

// ask returns nil if b answers with a status below 400 in time.
func (p *Pool) ask(ctx context.Context, b *backend) error {
	ctx, cancel := context.WithTimeout(ctx, p.o.Health.Timeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://backend"+p.o.Health.Path, http.NoBody)
	if err != nil {
		return err
	}
	r.Header.Set("User-Agent", "spillwayd-health")
	b.address(r, true)
	res, err := p.transport.RoundTrip(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	_, _ = io.CopyN(io.Discard, res.Body, 64<<10) // so that the connection can be used again
	if res.StatusCode >= http.StatusBadRequest {
		return statusError(res.Status)
	}
	return nil
}
