package config

import (
	"cmp"
	"time"
)

// Default returns the Config of a file that has only backend.urls.
func Default(urls ...string) (*Config, error) {
	c := &Config{Backend: Backend{URLs: urls}}
	c.setDefaults()
	return c, c.validate()
}

// setDefaults fills in the fields that are zero.
func (c *Config) setDefaults() {
	if len(c.Listen) == 0 {
		c.Listen = []Listen{{}}
	}
	for i := range c.Listen {
		c.Listen[i].setDefaults()
	}
	c.Admin.Address = cmp.Or(c.Admin.Address, "localhost:8081")
	c.Backend.setDefaults()
	c.Shedder.CPUThreshold = cmp.Or(c.Shedder.CPUThreshold, 0.9)
	c.Shedder.MaxWait = cmp.Or(c.Shedder.MaxWait, 250*time.Millisecond)
	c.Client.Key = cmp.Or(c.Client.Key, "none")
	c.Priority.Header = cmp.Or(c.Priority.Header, "Spillway-Priority")
	for i := range c.Routes {
		r := &c.Routes[i]
		r.Name = cmp.Or(r.Name, r.Match)
		if r.Rate != nil {
			r.Rate.Per = cmp.Or(r.Rate.Per, PerClient)
			if r.Rate.MaxWait > 0 {
				r.Rate.MaxQueue = cmp.Or(r.Rate.MaxQueue, 128)
			}
		}
		for j := range r.Quotas {
			r.Quotas[j].Per = cmp.Or(r.Quotas[j].Per, PerClient)
			r.Quotas[j].Zone = cmp.Or(r.Quotas[j].Zone, "UTC")
		}
		if r.Concurrency != nil {
			r.Concurrency.Per = cmp.Or(r.Concurrency.Per, PerAll)
		}
	}
	if r := c.Redis; r != nil {
		r.Prefix = cmp.Or(r.Prefix, "spillwayd")
		r.Timeout = cmp.Or(r.Timeout, 100*time.Millisecond)
		r.Term = cmp.Or(r.Term, 10*time.Second)
		r.Fallback = cmp.Or(r.Fallback, FallbackDivide)
	}
	c.State = cmp.Or(c.State, "auto")
	c.Log.Access = cmp.Or(c.Log.Access, "off")
	c.Log.Refusals = cmp.Or(c.Log.Refusals, 10)
	c.Drain.Timeout = cmp.Or(c.Drain.Timeout, 30*time.Second)
}

func (l *Listen) setDefaults() {
	l.Address = cmp.Or(l.Address, ":8080")
	l.MaxConnections = cmp.Or(l.MaxConnections, 20_000)
	l.MaxHeader = cmp.Or(l.MaxHeader, 32<<10)
	l.MaxStreams = cmp.Or(l.MaxStreams, 250)
	l.MaxUseless = cmp.Or(l.MaxUseless, 1000)
	l.HeaderTimeout = cmp.Or(l.HeaderTimeout, 5*time.Second)
	l.IdleTimeout = cmp.Or(l.IdleTimeout, 75*time.Second)
	l.BodyTimeout = cmp.Or(l.BodyTimeout, 20*time.Second)
	l.AnswerTimeout = cmp.Or(l.AnswerTimeout, 30*time.Second)
}

func (b *Backend) setDefaults() {
	b.Host = cmp.Or(b.Host, "preserve")
	b.CPU = cmp.Or(b.CPU, "backend")
	b.ConnectTimeout = cmp.Or(b.ConnectTimeout, 2*time.Second)
	b.Abandoned = cmp.Or(b.Abandoned, 10*time.Second)
	b.Eject.FailureRate = cmp.Or(b.Eject.FailureRate, 0.5)
	b.Eject.Consecutive = cmp.Or(b.Eject.Consecutive, 10)
	b.Eject.OpenFor = cmp.Or(b.Eject.OpenFor, 5*time.Second)
	b.Eject.Share = cmp.Or(b.Eject.Share, 0.5)
	if h := b.Health; h != nil {
		h.Path = cmp.Or(h.Path, "/healthz")
		h.Every = cmp.Or(h.Every, 5*time.Second)
		h.Timeout = cmp.Or(h.Timeout, time.Second)
		h.Failures = cmp.Or(h.Failures, 3)
		h.Successes = cmp.Or(h.Successes, 1)
	}
	if r := b.Retry; r != nil {
		r.Attempts = cmp.Or(r.Attempts, 2)
		r.Backoff = cmp.Or(r.Backoff, 25*time.Millisecond)
		r.Tokens = cmp.Or(r.Tokens, 10)
	}
}
