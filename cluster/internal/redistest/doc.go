// Package redistest starts real Redis servers for tests, breaks them, and breaks the network before them.
//
//	s := redistest.Start(t)               // a redis-server of its own, empty, gone with the test
//	p := redistest.NewProxy(t, s.Addr())  // a network that can fail
//	client := redis.NewClient(&redis.Options{Addr: p.Addr()})
//	...
//	p.SetLatency(20 * time.Millisecond)
//	p.DropReplies(1)                      // requests arrive and are executed; nobody hears of it
//	s.Pause()
//	s.Restart()                           // killed, and back empty
//
// [Main] and [Spawn] run parts of a test in processes of their own. Without redis-server on the machine, tests that call
// [Start] skip, with a line that begins with "SKIPPED: no redis-server".
//
// Methods fail the test when they cannot do what they are asked to.
package redistest
