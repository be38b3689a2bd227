// Package redistest starts real Redis servers for tests, and breaks them and the network in front of them.
//
//	s := redistest.Start(t)               // a redis-server of its own, empty, removed after the test
//	p := redistest.NewProxy(t, s.Addr())  // a network that can fail
//	client := redis.NewClient(&redis.Options{Addr: p.Addr()})
//	...
//	p.SetLatency(20 * time.Millisecond)
//	p.DropReplies(1)                      // requests arrive and are executed; their replies are lost
//	s.Pause()
//	s.Restart()                           // killed, and back empty
//
// [Main] and [Spawn] run parts of a test in separate processes. Without redis-server on the machine, tests that call
// [Start] skip, with a line that begins with "SKIPPED: no redis-server".
//
// Methods fail the test when they cannot do their work.
package redistest
