package sim

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/spillway-go/spillway"
)

// A Scenario is a service and its load.
type Scenario struct {
	Name    string
	Machine Machine
	Classes []Class
	Client  Client
	Phases  []Phase
	// Events change the machine while it runs.
	Events []Event
	// Trace, if set, lists all requests exactly. Then Phases only define the measured parts and the load, and the Share
	// of a class only sets the capacity. [Replay] makes a Scenario of a Trace.
	Trace []Arrival
	// Capacity is how many requests per second the service can answer at most. If Capacity is 0, it follows from the CPU
	// that the classes need on average and the pools that they use.
	Capacity float64
	// Settle is [testing/synctest.Wait] if the gates have policies that queue. Run is then called in a bubble, whose clock
	// passes as the simulated one does while requests wait. If Settle is nil, no policy may block.
	Settle func()
}

// A Machine describes a host.
type Machine struct {
	Hosts       int            // how many, each with its own gate. If Hosts is 0, it is 1.
	Balance     Balance        // how requests are spread over the Hosts
	Cores       int            // processors of each. If Cores is 0, it is 2.
	Quota       float64        // CPUs of a quota. If Quota is 0, there is none.
	QuotaPeriod time.Duration  // If QuotaPeriod is 0, it is 100 ms.
	Parse       time.Duration  // CPU that a request needs before the gate sees it. If Parse is 0, it is 25 µs.
	Refuse      time.Duration  // CPU that a refusal needs after it. If Refuse is 0, it is 5 µs.
	Pools       map[string]int // slots of each pool that stages use, by name
	Cold        int            // number of first requests for which each host is slow, as with cold caches
	ColdFactor  float64        // factor for the CPU of these requests. If ColdFactor is 0, it is 5.
}

// A Balance is the way in which requests are spread over hosts. The zero Balance is [Random].
type Balance int

// The balances.
const (
	Random      Balance = iota
	RoundRobin          // one after the other
	LeastLoaded         // to the host with the fewest unanswered requests whose clients still wait
)

// A Class is a kind of request.
type Class struct {
	Name  string
	Share float64 // of all requests, relative to the other classes
	Key   string
	// Keys is the number of different keys: each call has one of them at random, which is Key with a number. If Keys is 0,
	// all calls have Key.
	Keys     int
	Route    string
	Priority spillway.Priority
	Stages   []Stage
	// Slice is how much CPU a request uses before it yields. If Slice is 0, it is 100 µs; after 10 ms Go preempts a
	// goroutine.
	Slice time.Duration
	// Calls is the number of consecutive requests that a client makes for one call; each starts when the one before is
	// served. The call is served when the last request is, and capacity, latency and goodput refer to the whole call.
	// If Calls is 0, it is 1.
	Calls int
	// Raise is added to the priority of a request for each one of the same call that was served before it.
	Raise spillway.Priority
	// Timeout is how long the clients of the class wait for each answer. They send it along ([spillway.Request].Timeout), and
	// an answer after it has the outcome [spillway.Ignored]. If Timeout is 0, it is [Client].Deadline, and not sent.
	Timeout time.Duration
}

// A Stage is a part of a request's work. It takes its slot, uses its CPU, waits, and gives its slot back. Then the
// request may have failed.
type Stage struct {
	Name   string // for [Event.Stage]
	CPU    Dist
	Wait   Dist
	During string           // the pool whose slot is held; empty for none
	Fails  float64          // share of requests, 0..1, that end here
	As     spillway.Outcome // outcome of failed requests: [spillway.Failure] or [spillway.Dropped]. If As is 0, it is Failure.
}

// A Client is the behaviour of the clients.
type Client struct {
	Deadline time.Duration // when it gives up; the request continues. If Deadline is 0, it is 1 s.
	Useful   time.Duration // a later answer is worthless. If Useful is 0, it is 250 ms.
	Retries  int           // how often it asks again after a refusal, a failure or a deadline
	Backoff  Dist          // how long it waits before it does. If Backoff is zero, it is 50 ms plus 100 ms exponential.
	// Before, if set, is asked before each request is sent to h at r.Arrived. If send is false, the request is not sent
	// and counts as refused. Otherwise heard, unless it is nil, is called with the time of the answer and whether the
	// server refused.
	Before func(h *Host, r spillway.Request) (heard func(now time.Time, refused bool), send bool)
}

// A Phase is a period of load.
type Phase struct {
	For  time.Duration
	Load float64 // at its beginning, as a share of the capacity
	To   float64 // the share at its end, if Ramp
	Ramp bool
	// Measured marks the phases that count in the Result.
	Measured bool
}

// withDefaults returns s with every zero field set to its default, or an error that names the invalid field.
func (s Scenario) withDefaults() (Scenario, error) {
	s.Machine.setDefaults()
	s.Client.Deadline = cmp.Or(s.Client.Deadline, time.Second)
	s.Client.Useful = cmp.Or(s.Client.Useful, 250*time.Millisecond)
	s.Client.Backoff = cmp.Or(s.Client.Backoff, Dist{Fixed: 50 * time.Millisecond, Exp: 100 * time.Millisecond})
	if err := s.validate(); err != nil {
		return s, fmt.Errorf("sim: scenario %q: %w", s.Name, err)
	}
	classes := append([]Class(nil), s.Classes...)
	for i := range classes {
		classes[i].Slice = cmp.Or(classes[i].Slice, 100*time.Microsecond)
		classes[i].Calls = cmp.Or(classes[i].Calls, 1)
	}
	s.Classes = classes
	if s.Capacity == 0 {
		s.Capacity = s.capacity()
	}
	return s, nil
}

func (m *Machine) setDefaults() {
	m.Hosts = cmp.Or(m.Hosts, 1)
	m.Cores = cmp.Or(m.Cores, 2)
	m.QuotaPeriod = cmp.Or(m.QuotaPeriod, 100*time.Millisecond)
	m.Parse = cmp.Or(m.Parse, 25*time.Microsecond)
	m.Refuse = cmp.Or(m.Refuse, 5*time.Microsecond)
	m.ColdFactor = cmp.Or(m.ColdFactor, 5)
}

// capacity returns how many requests per second all hosts can answer together, which depends on the scarcest resource.
func (s *Scenario) capacity() float64 {
	var shares, calls, cpu float64
	held := map[string]float64{}
	for _, c := range s.Classes {
		shares += c.Share
		n := c.Share * float64(max(1, c.Calls))
		calls += n
		for _, stage := range c.Stages {
			cpu += n * stage.CPU.mean().Seconds()
			held[stage.During] += n * (stage.CPU.mean() + stage.Wait.mean()).Seconds()
		}
	}
	most := s.Machine.cpus() / (cpu/shares + calls/shares*s.Machine.Parse.Seconds())
	for name, n := range s.Machine.Pools {
		if held[name] > 0 {
			most = math.Min(most, float64(n)*shares/held[name])
		}
	}
	return most * float64(s.Machine.Hosts)
}

// cpus is how many CPUs there are to use on a host.
func (m *Machine) cpus() float64 {
	if m.Quota > 0 {
		return math.Min(float64(m.Cores), m.Quota)
	}
	return float64(m.Cores)
}
