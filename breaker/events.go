package breaker

// unlock releases b.mu and delivers the events since it was taken.
func (b *Breaker) unlock() {
	o := b.opts.Load()
	listen := o.OnEvent
	b.countOpenings()
	if listen == nil {
		b.machine.changes = b.machine.changes[:0]
		b.mu.Unlock()
		return
	}
	for _, c := range b.machine.changes {
		b.queue = append(b.queue, Event{
			Policy: o.Name,
			Time:   b.base.at(c.at), From: c.from, To: c.to, Reason: c.reason, OpenFor: c.openFor, WouldOpen: c.wouldOpen,
		})
	}
	b.machine.changes = b.machine.changes[:0]
	tell := len(b.queue) > 0 && !b.telling
	if tell {
		b.telling = true
	}
	b.mu.Unlock()
	if tell {
		b.tell(listen)
	}
}

// countOpenings counts the openings among the changes. The caller holds b.mu.
func (b *Breaker) countOpenings() {
	for _, c := range b.machine.changes {
		if c.to != Open || c.wouldOpen {
			continue
		}
		b.opened.add(c.reason)
		if b.veto != nil {
			b.veto.opened(c.reason)
		}
	}
}

// tell calls the listener for each queued event, one at a time. Events that arrive meanwhile, even from the listener itself,
// join the queue.
func (b *Breaker) tell(listen func(Event)) {
	done := false
	defer func() {
		if !done { // the listener has ended its goroutine: the next caller delivers the rest
			b.mu.Lock()
			b.telling = false
			b.mu.Unlock()
		}
	}()
	for {
		b.mu.Lock()
		if len(b.queue) == 0 {
			b.telling, b.queue, done = false, nil, true
			b.mu.Unlock()
			return
		}
		e := b.queue[0]
		b.queue = b.queue[1:]
		b.mu.Unlock()
		b.tellOne(listen, e)
	}
}

func (b *Breaker) tellOne(listen func(Event), e Event) {
	defer func() {
		if recover() != nil {
			b.panics.Add(1)
		}
	}()
	listen(e)
}
