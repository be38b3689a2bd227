package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// A phase is a period that begins with an action on servers or Redis.
type phase struct {
	name     string
	from, to time.Time
}

// A drama is one run.
type drama struct {
	settings

	redis  *database
	nodes  []*node
	phases []phase
	strip  strip
}

// drama starts everything, kills and restarts the parts, and stops everything. Meanwhile it draws a chart of the requests.
func (s settings) drama(out io.Writer) (*drama, error) {
	redis, err := openRedis(s.redis)
	if err != nil {
		return nil, err
	}
	d := &drama{settings: s, redis: redis}
	d.version = fmt.Sprintf("example-%d-%d", os.Getpid(), time.Now().UnixNano())
	defer d.close()
	for i, part := range demands {
		n := &node{name: fmt.Sprint("server ", i+1), demand: part * float64(s.rate), moments: map[int64]moment{}}
		d.nodes = append(d.nodes, n)
		if err := n.start(d); err != nil {
			return nil, err
		}
	}
	time.Sleep(500 * time.Millisecond) // connections
	d.strip.begin(out, d)
	busiest := d.nodes[0]
	lost, story := redis.lost()
	for _, a := range []struct {
		name, about string
		do          func() error
	}{
		{"steady", "three servers", func() error { return nil }},
		{"server killed", "server 1 is killed, and its clients are gone", func() error { busiest.kill(); return nil }},
		{lost, story, redis.kill},
		{"restored", "Redis is back, and server 1", func() error {
			if err := redis.start(); err != nil {
				return err
			}
			return busiest.start(d)
		}},
	} {
		d.strip.say(a.about)
		if err := d.act(a.name, a.do); err != nil {
			return nil, err
		}
	}
	return d, nil
}

func (d *drama) close() {
	var all sync.WaitGroup
	for _, n := range d.nodes {
		all.Go(n.stop)
	}
	all.Wait()
	d.redis.close()
}

// settle is the time after a change from which requests count for the averages.
func (d *drama) settle() time.Duration { return min(d.phase/3, 2*time.Second) }

// act does something and waits for a phase, and for the servers to report it.
func (d *drama) act(name string, do func() error) error {
	p := phase{name: name, from: time.Now()}
	if err := do(); err != nil {
		return err
	}
	p.to = p.from.Add(d.phase)
	for time.Now().Before(p.to.Add(3 * window)) {
		time.Sleep(window / 2)
		d.strip.draw(min(windowOf(time.Now().Add(-2*window)), windowOf(p.to)))
	}
	d.phases = append(d.phases, p)
	return nil
}
