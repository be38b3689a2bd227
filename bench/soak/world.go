package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"
)

// A world is one run in virtual time: a process with its gates, its clients and its troubles.
type world struct {
	*clock
	seed   uint64
	rng    *rand.Rand // for arrivals and faults; decisions of policies do not affect it
	tuning *rand.Rand // for the options
	events events
	out    io.Writer
	end    time.Duration

	server  *station
	depend  *dependency
	gates   []*gateBook
	probes  []*probe
	ledgers []*ledger
	queues  *queueLane
	checks  []func()
	tunes   []func()
	asks    []func(*rand.Rand) // calls of limits without a gate
	budget  *budget
	tuned   int // number of changes of options
	surge   float64

	requests   int64
	reporting  sync.Mutex
	violations violations
	heap       []float64
	goroutines int // at the beginning
}

// startAt is the noon before a night in which many clocks change.
var startAt = time.Date(2026, time.March, 28, 12, 0, 0, 0, time.UTC)

func newWorld(seed uint64, out io.Writer) (*world, error) {
	c, err := newClock(startAt)
	if err != nil {
		return nil, err
	}
	w := &world{clock: c, seed: seed, rng: rand.New(rand.NewPCG(seed, 21)), tuning: rand.New(rand.NewPCG(seed, 23)), out: out, goroutines: runtime.NumGoroutine()}
	w.server, w.depend = newStation(w), &dependency{w: w, slower: 1}
	w.build()
	return w, nil
}

// after schedules f for a time from now.
func (w *world) after(d time.Duration, f func()) { w.events.plan(w.now+max(d, 0), f) }

// every calls f every d, from d on.
func (w *world) every(d time.Duration, f func()) {
	w.after(d, func() {
		f()
		w.every(d, f)
	})
}

// exp returns an exponential duration of the given mean.
func exp(rng *rand.Rand, mean time.Duration) time.Duration {
	return time.Duration(rng.ExpFloat64() * float64(mean))
}

// violate reports a violation.
func (w *world) violate(where, format string, args ...any) {
	w.reporting.Lock() // goroutines in queues report too
	defer w.reporting.Unlock()
	w.violations.add(w.out, w.now, w.seed, where, fmt.Sprintf(format, args...))
}

// violations counts the violations, and prints the first few of each kind.
type violations struct {
	n       int
	printed map[string]int
}

const mostPrinted = 5

func (v *violations) add(out io.Writer, at time.Duration, seed uint64, where, what string) {
	v.n++
	if v.printed == nil {
		v.printed = map[string]int{}
	}
	switch v.printed[where]++; {
	case v.printed[where] <= mostPrinted:
		fmt.Fprintf(out, "VIOLATION at %v, seed %d: %s: %s\n", at.Round(time.Microsecond), seed, where, what)
	case v.printed[where] == mostPrinted+1:
		fmt.Fprintf(out, "VIOLATION at %v, seed %d: %s: further ones are counted and not printed\n", at.Round(time.Microsecond), seed, where)
	}
}

// play runs the world for d, waits for the requests in flight, and returns its findings.
func (w *world) play(d time.Duration) report {
	w.end = d
	w.traffic()
	w.troubles()
	w.every(time.Minute, w.minute)
	for w.now < d {
		w.step()
	}
	w.queues.close()
	w.now = d
	for w.unfinished() > 0 && w.now < d+time.Hour {
		w.step()
	}
	w.settle()
	r := report{VirtualHours: d.Hours(), Requests: w.requests, HeapGrowth: growth(w.heap)}
	r.Leaked = w.unfinished()
	for range 100 { // goroutines that have reported may still be about to exit
		if runtime.NumGoroutine() <= w.goroutines {
			break
		}
		runtime.Gosched()
	}
	r.Leaked += int64(max(0, runtime.NumGoroutine()-w.goroutines))
	if why := grown(w.heap, 1<<20); why != "" {
		w.violate("heap", "%s", why)
	}
	r.Violations = w.violations.n
	return r
}

// step runs the next event.
func (w *world) step() {
	e := w.events.next()
	w.now = e.at
	e.run()
}

// unfinished counts the requests that hold a permit or wait for one.
func (w *world) unfinished() (n int64) {
	for _, g := range w.gates {
		n += g.admitted - g.ended()
	}
	return n + int64(w.queues.live)
}

// settle checks everything once more when nothing is in flight.
func (w *world) settle() {
	w.check()
	for _, l := range w.ledgers {
		l.hold = 0
		l.settle(w)
	}
	for _, p := range w.probes {
		if p.inFlight() != 0 || p.cost != 0 {
			w.violate(p.name, "nothing in flight expected at the end, there are %d, of cost %d", p.inFlight(), p.cost)
		}
	}
}

// minute runs the checks of one virtual minute.
func (w *world) minute() {
	w.check()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	w.heap = append(w.heap, float64(m.HeapAlloc))
	// All goroutines but the first wait in a queue.
	if n := runtime.NumGoroutine() - w.goroutines; n > w.queues.live {
		runtime.Gosched() // one that has reported may still be about to exit
		if n = runtime.NumGoroutine() - w.goroutines; n > w.queues.live+2 {
			w.violate("goroutines", "%d expected beside the first, there are %d", w.queues.live, n)
		}
	}
}

func (w *world) check() {
	for _, g := range w.gates {
		g.check()
	}
	for _, p := range w.probes {
		p.check()
	}
	for _, f := range w.checks {
		f()
	}
}

// mostGrowth is how much larger the heap may be at the end than after the first fifth of the time, in which tables fill.
const mostGrowth = 0.1

// growth compares the median of the last tenth of the samples with that of the third tenth.
func growth(heap []float64) float64 {
	first, last := firstAndLast(heap)
	if first == 0 {
		return 0
	}
	return last/first - 1
}

// grown describes a heap that has grown by more than mostGrowth and by more than bytes; otherwise it returns "".
func grown(heap []float64, bytes float64) string {
	first, last := firstAndLast(heap)
	if last-first <= max(bytes, mostGrowth*first) {
		return ""
	}
	return fmt.Sprintf("at most %.0f bytes expected, there are %.0f", first+max(bytes, mostGrowth*first), last)
}

func firstAndLast(heap []float64) (first, last float64) {
	tenth := len(heap) / 10
	if tenth == 0 {
		return 0, 0
	}
	return median(heap[2*tenth : 3*tenth]), median(heap[len(heap)-tenth:])
}

func median(values []float64) float64 {
	v := slices.Clone(values)
	slices.Sort(v)
	return v[len(v)/2]
}

// summary prints the activity of the gates, to show that the run covered its purpose.
func (w *world) summary() {
	for _, g := range w.gates {
		s := g.gate.Stats()
		fmt.Fprintf(w.out, "%-7s %9d admitted, %5.1f %% refused, %6d cancelled, %5d panics of a policy\n", g.name, s.Admitted,
			100*float64(s.Refused)/float64(max(1, s.Admitted+s.Refused)), s.Cancelled, g.panicked)
		for _, r := range s.ByReason {
			fmt.Fprintf(w.out, "        %9d by %s: %s\n", r.Count, r.Policy, r.Reason)
		}
	}
	fmt.Fprintf(w.out, "options changed %d times\n", w.tuned)
}
