package limiter

import (
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/race"
	"github.com/spillway-go/spillway/policytest"
)

// makers returns a constructor of each limit, small enough to refuse soon.
func makers() map[string]func() spillway.Policy {
	bucket := func() Limiter { return spillway.Must(New(Bucket{Rate: Per(10, time.Second), Burst: 7})) }
	odd := func() Limiter { return spillway.Must(New(Bucket{Rate: Per(7, time.Minute), Burst: 5})) }
	window := func() Limiter {
		return spillway.Must(New(FixedWindow{Limit: 9, Period: time.Minute}))
	}
	day := func() Limiter {
		return spillway.Must(New(FixedWindow{Limit: 9, Calendar: EveryDay}))
	}
	sliding := func() Limiter {
		return spillway.Must(New(SlidingWindow{Limit: 9, Window: time.Minute}))
	}
	log := func() Limiter {
		return spillway.Must(New(SlidingLog{Limit: 9, Window: time.Minute}))
	}
	warm := func() Limiter {
		return spillway.Must(New(WarmUp{Rate: Per(10, time.Second), WarmUp: 10 * time.Second}))
	}
	concurrency := func() Limiter { return spillway.Must(New(Concurrency{Limit: 9})) }
	keyed := func(like Limiter, maxKeys int) spillway.Policy {
		return spillway.Must(NewKeyed(like.Rule(), &KeyedOptions{MaxKeys: maxKeys}))
	}
	return map[string]func() spillway.Policy{
		"Bucket":     func() spillway.Policy { return bucket() },
		"odd Bucket": func() spillway.Policy { return odd() },
		"no refill": func() spillway.Policy {
			return spillway.Must(New(Bucket{Rate: Per(0, time.Second), Burst: 5}))
		},
		"Policer": func() spillway.Policy {
			return spillway.Must(New(Bucket{Rate: Per(3, time.Second), Burst: 4}))
		},
		"FixedWindow":   func() spillway.Policy { return window() },
		"calendar":      func() spillway.Policy { return day() },
		"SlidingWindow": func() spillway.Policy { return sliding() },
		"SlidingLog":    func() spillway.Policy { return log() },
		"WarmUp":        func() spillway.Policy { return warm() },
		"Concurrency":   func() spillway.Policy { return concurrency() },
		"XTime": func() spillway.Policy {
			return spillway.Must(New(XTime{Limiter: rate.NewLimiter(10, 7)}))
		},
		"Keyed Bucket":        func() spillway.Policy { return keyed(bucket(), 0) },
		"Keyed overflow":      func() spillway.Policy { return keyed(bucket(), 1) },
		"Keyed FixedWindow":   func() spillway.Policy { return keyed(window(), 0) },
		"Keyed calendar":      func() spillway.Policy { return keyed(day(), 0) },
		"Keyed SlidingWindow": func() spillway.Policy { return keyed(sliding(), 0) },
		"Keyed SlidingLog":    func() spillway.Policy { return keyed(log(), 0) },
		"Keyed WarmUp":        func() spillway.Policy { return keyed(warm(), 0) },
		"Keyed Concurrency":   func() spillway.Policy { return keyed(spillway.Must(New(Concurrency{Limit: 2})), 0) },
	}
}

// queuers returns a constructor of each limit that queues.
func queuers() map[string]func() spillway.Policy {
	shaper := func() Limiter {
		return spillway.Must(New(Shaper{Rate: Per(5, time.Second), Slack: 3, MaxQueue: 5}))
	}
	queue := func(o Order) Limiter {
		return spillway.Must(New(Queue{Limit: 5, MaxQueue: 4, MaxWait: 50 * time.Millisecond, Order: o}))
	}
	registry := func(build func() Member, maxKeys int) spillway.Policy {
		return spillway.Must(NewRegistry(&RegistryOptions{New: func(string) (Member, error) { return build(), nil }, MaxKeys: maxKeys}))
	}
	return map[string]func() spillway.Policy{
		"Shaper":            func() spillway.Policy { return shaper() },
		"Queue FIFO":        func() spillway.Policy { return queue(FIFO) },
		"Queue LIFO":        func() spillway.Policy { return queue(LIFO) },
		"Queue Adaptive":    func() spillway.Policy { return queue(Adaptive) },
		"Queue Fair":        func() spillway.Policy { return queue(Fair) },
		"Registry Queue":    func() spillway.Policy { return registry(func() Member { return queue(FIFO) }, 0) },
		"Registry Shaper":   func() spillway.Policy { return registry(func() Member { return shaper() }, 0) },
		"Registry overflow": func() spillway.Policy { return registry(func() Member { return queue(FIFO) }, 1) },
	}
}

func TestContract(t *testing.T) {
	// Two dozen requests at one instant are more than any of these admits.
	run := func(name string, newPolicy func() spillway.Policy) {
		t.Run(name, func(t *testing.T) {
			if race.Enabled {
				t.Parallel() // otherwise the suite counts allocations
			}
			policytest.Run(t, func() spillway.Policy { return bare(newPolicy()) }, &policytest.Options{Burst: 24})
		})
	}
	for name, newPolicy := range makers() {
		run(name, newPolicy)
	}
	for name, newPolicy := range queuers() {
		run(name, newPolicy)
	}
}

// bare hides the Stats of what has nothing in flight: the suite would read them after each step, only to find out.
func bare(p spillway.Policy) spillway.Policy {
	switch p := p.(type) {
	case *places:
		return counted{p, func() int64 { return p.Stats().InFlight }}
	case *queue:
		return countedQueue{p, func() int64 { return p.Stats().InFlight }}
	case queuer:
		return struct{ queuer }{p}
	}
	return struct{ spillway.Policy }{p}
}

type counted struct {
	spillway.Policy
	inFlight func() int64
}

func (c counted) InFlight() int64 { return c.inFlight() }

// A queuer is a Policy whose Admit may block.
type queuer interface {
	spillway.Policy
	Queues() bool
}

type countedQueue struct {
	queuer
	inFlight func() int64
}

func (c countedQueue) InFlight() int64 { return c.inFlight() }
