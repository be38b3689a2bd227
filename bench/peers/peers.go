package peers

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/zeromicro/go-zero/core/logx"

	"github.com/spillway-go/spillway/lab/overload"
)

// A Peer is an admission control of another library.
type Peer struct {
	// Name is its name in flags and results.
	Name string

	// New returns it in its first state.
	New func(Facts) (Admission, error)
}

// Facts are the facts about the process that a peer may use.
type Facts struct {
	// CPU returns the CPU in use as a fraction, 0 to 1, of the CPU that the process may use, raw and smoothed; 0 while
	// it is unknown.
	CPU func() (raw, smoothed float64)
}

// An Admission is a peer in use. Its functions may be called concurrently.
type Admission struct {
	// Admit reports whether a request may run; if so, done must be called once when it has ended.
	Admit func() (done func(), ok bool)

	// View returns the peer's figures. It may be nil.
	View func() overload.View
}

// All returns all peers.
func All() []Peer {
	return []Peer{
		{"go-zero", fed(goZero, &goZeroCPU, raw)},
		{"go-zero-smooth", fed(goZero, &goZeroCPU, smoothed)},
		{"go-zero-stock", goZero},
		{"aegis", fed(aegis, &aegisCPU, raw)},
		{"aegis-smooth", fed(aegis, &aegisCPU, smoothed)},
		{"aegis-stock", aegis},
		{"failsafe", failsafeLimiter},
		{"failsafe-throttler", failsafeThrottler},
		{"gradient2", newGradient2},
		{"vegas", newVegas},
	}
}

// Find returns the peer of the given name.
func Find(name string) (Peer, error) {
	var known []string
	for _, p := range All() {
		if p.Name == name {
			return p, nil
		}
		known = append(known, p.Name)
	}
	return Peer{}, fmt.Errorf("peers: no peer %q; there are %s", name, strings.Join(known, ", "))
}

// Guards returns Spillway and all peers as guards of a real server. It turns off the log line that go-zero writes once
// a minute.
func Guards() []overload.Guard {
	logx.Disable()
	guards := []overload.Guard{{Name: "spillway", Wrap: protected}}
	for _, p := range All() {
		guards = append(guards, overload.Guard{Name: p.Name, Wrap: p.wrap})
	}
	return guards
}

// wrap puts p around the handler of a real server.
func (p Peer) wrap(next http.Handler) (http.Handler, overload.StatsFunc, error) {
	cpu, err := trueCPU()
	if err != nil {
		return nil, nil, err
	}
	a, err := p.New(Facts{CPU: cpu})
	if err != nil {
		return nil, nil, err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		done, ok := a.Admit()
		if !ok {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		defer done()
		next.ServeHTTP(w, r)
	}), a.View, nil
}
