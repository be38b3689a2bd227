package overload

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"
)

// A Work is the job that the server does for one request.
type Work struct {
	// Name is its name in the -work flag.
	Name string

	// About describes in one line the services that the work stands for.
	About string

	// Workers is how many clients in a closed loop keep the server busy, to measure its capacity. If Workers is 0, 8 do.
	Workers int

	// Capacity is the number of requests per second that counts as a load of 1. Set it for work without a bottleneck,
	// such as a sleep. If Capacity is 0, it is measured.
	Capacity float64

	// SLO is the time after which an answer is worthless. If SLO is 0, it is 500 ms.
	SLO time.Duration

	// Deadline is when a client gives up, at most a minute and not before SLO. If Deadline is 0, it is one second, or SLO
	// if that is more.
	Deadline time.Duration

	// New returns the function that does the work of each request. New runs in the server process, and the function may
	// be called concurrently.
	New func(*Burner) func()
}

// Works returns the built-in works. None of them looks at the request's context: like most services they finish what
// they began, even if the client has gone.
func Works() []Work {
	return []Work{
		{
			Name:  "cpu",
			About: "2 ms of CPU that yields every 0.1 ms, as in a service that uses locks, channels and system calls",
			New:   each(func(b *Burner) { b.BurnYielding(2 * time.Millisecond) }),
		},
		{
			Name:  "cpusolid",
			About: "2 ms of CPU in one piece, as in encoding, compression or cryptography; other requests wait meanwhile",
			New:   each(func(b *Burner) { b.Burn(2 * time.Millisecond) }),
		},
		{
			Name:    "io",
			About:   "1 ms of CPU around a wait of 20 ms, as in a service that calls another one",
			Workers: 64,
			New: each(func(b *Burner) {
				b.BurnYielding(500 * time.Microsecond)
				time.Sleep(20 * time.Millisecond)
				b.BurnYielding(500 * time.Microsecond)
			}),
		},
		{
			Name:    "db",
			About:   "25 ms in one of 8 slots, as in a pool of database connections: overloaded while the CPU idles",
			Workers: 32,
			New:     pool(8, 25*time.Millisecond),
		},
		{
			Name:  "mixed",
			About: "9 of 10 requests take 0.7 ms of CPU, the tenth 14 ms, as in a service with a few heavy routes",
			New:   mixed(700*time.Microsecond, 14*time.Millisecond),
		},
		slow("slow", time.Second),
		slow("slow2", 2*time.Second),
	}
}

// slow is work without a bottleneck: a shedder should never refuse any of it.
func slow(name string, mean time.Duration) Work {
	return Work{
		Name:     name,
		About:    fmt.Sprintf("a sleep, exponential, of %v on average, as in a service that calls slow services: no resource is short", mean),
		Capacity: 300,
		SLO:      20 * time.Second,
		Deadline: 20 * time.Second,
		New:      each(func(*Burner) { time.Sleep(time.Duration(rand.ExpFloat64() * float64(mean))) }),
	}
}

// maxDeadline bounds how long a run waits for its last answers.
const maxDeadline = time.Minute

// withDefaults returns w with every zero field set to its default, or an error that names the invalid field.
func (w Work) withDefaults() (Work, error) {
	if w.Workers == 0 {
		w.Workers = 8
	}
	if w.SLO == 0 {
		w.SLO = defaultSLO
	}
	if w.Deadline == 0 {
		w.Deadline = max(defaultDeadline, w.SLO)
	}
	switch {
	case w.Workers < 0:
		return w, fmt.Errorf("overload: work %q: Workers must not be negative, got %d", w.Name, w.Workers)
	case w.Capacity != 0 && !(w.Capacity >= 1 && w.Capacity <= maxCapacity):
		return w, fmt.Errorf("overload: work %q: Capacity must be 1 to %g, or 0 to measure it, got %g", w.Name, float64(maxCapacity), w.Capacity)
	case w.SLO < 0:
		return w, fmt.Errorf("overload: work %q: SLO must not be negative, got %v", w.Name, w.SLO)
	case w.Deadline < w.SLO || w.Deadline > maxDeadline:
		return w, fmt.Errorf("overload: work %q: Deadline must be from SLO, which is %v, to %v, got %v", w.Name, w.SLO, maxDeadline, w.Deadline)
	}
	return w, nil
}

// maxCapacity keeps a typing error from becoming a flood.
const maxCapacity = 1e6

func each(do func(*Burner)) func(*Burner) func() {
	return func(b *Burner) func() { return func() { do(b) } }
}

func pool(slots int, d time.Duration) func(*Burner) func() {
	return func(*Burner) func() {
		slot := make(chan struct{}, slots)
		return func() {
			slot <- struct{}{}
			time.Sleep(d)
			<-slot
		}
	}
}

func mixed(short, long time.Duration) func(*Burner) func() {
	return func(b *Burner) func() {
		var n atomic.Uint64
		return func() {
			d := short
			// A bit mix of the running number: random enough for the order of arrival, and without a lock.
			if x := n.Add(1) * 0x9e3779b97f4a7c15; (x>>33)%10 == 0 {
				d = long
			}
			b.BurnYielding(d)
		}
	}
}

// work finds a work by name among the built-in ones and c.Works.
func (c *Config) work(name string) (Work, error) {
	var known []string
	for _, w := range append(Works(), c.Works...) {
		if w.Name == name {
			return w.withDefaults()
		}
		known = append(known, w.Name)
	}
	return Work{}, fmt.Errorf("overload: no work %q; there are %s", name, strings.Join(known, ", "))
}
