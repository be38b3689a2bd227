package main

import (
	"fmt"
	"os"
	"sync"
	"time"
)

// A phase is a time in which nothing is done to servers or Redis.
type phase struct {
	name     string
	from, to time.Time
	offered  []float64 // requests per second, after settling
	errors   int
}

// A drama is one run.
type drama struct {
	settings

	redis  *database
	nodes  []*node
	phases []phase
}

// drama starts everything, takes it away and gives it back, and stops everything.
func (s settings) drama() (*drama, error) {
	redis, err := openRedis(s.redis)
	if err != nil {
		return nil, err
	}
	d := &drama{settings: s, redis: redis}
	d.version = fmt.Sprintf("example-%d-%d", os.Getpid(), time.Now().UnixNano())
	defer d.close()
	for i, part := range demands {
		n := &node{name: fmt.Sprint("server ", i+1), demand: part * float64(s.rate), admitted: map[int64]int{}}
		d.nodes = append(d.nodes, n)
		if err := n.start(d); err != nil {
			return nil, err
		}
	}
	time.Sleep(500 * time.Millisecond) // connections
	d.act("steady")
	d.nodes[0].kill()
	d.act("server killed")
	if !redis.foreign {
		redis.kill()
		d.act("redis killed")
		if err := redis.start(); err != nil {
			return nil, err
		}
	}
	if err := d.nodes[0].start(d); err != nil {
		return nil, err
	}
	d.act("restored")
	return d, nil
}

func (d *drama) close() {
	var all sync.WaitGroup
	for _, n := range d.nodes {
		all.Go(n.stop)
	}
	all.Wait()
	d.redis.kill()
}

// settle is how long after a change what is let through counts for the averages.
func (d *drama) settle() time.Duration { return min(d.phase/3, 2*time.Second) }

// act lets a phase pass.
func (d *drama) act(name string) {
	p := phase{name: name, from: time.Now()}
	time.Sleep(d.settle())
	before := make([]load, len(d.nodes))
	for i, n := range d.nodes {
		before[i] = n.load()
	}
	began := time.Now()
	time.Sleep(d.phase - time.Since(p.from))
	for i, n := range d.nodes {
		p.offered = append(p.offered, float64(n.load().sent-before[i].sent)/time.Since(began).Seconds())
	}
	for _, n := range d.nodes {
		p.errors += n.takeErrors()
	}
	p.to = time.Now()
	d.phases = append(d.phases, p)
}
