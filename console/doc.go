// Package console shows live what a gate does: a page that the service itself serves.
//
//	page := console.New(map[string]stats.Source{"api": gate}, nil)
//	defer page.Close()
//	mux.Handle("/debug/spillway/", page)
//
// The page begins with a sentence, such as "Refusing 38 % for 12 s because goroutines wait 41 ms for a CPU; limit 24, 24
// in flight; sheddable all, normal 31 %, critical none." Charts follow: the requests, the requests in flight against their
// limit, the CPU, the refusals by reason and by priority. A table lists each policy with its state. The last 50 changes are marks on
// all charts.
//
// A [Page] keeps the last ten minutes, so the charts begin before the page was opened. It takes one sample a second in a
// goroutine of its own, which [Page.Close] ends. Browsers ask for new samples once a second. The page says when the server was
// restarted or does not answer.
//
// # Safety
//
// The page changes nothing, unless [Options.Control] lets people change the rules that it shows. It writes them where
// they live, so that a restart does not undo the change. Requests from pages of other origins are refused, and each
// change is in the log with the name of the person. By default only programs on the same machine can read it. The peer
// and the Host of the request must be loopback addresses, and no proxy may have forwarded the request. Use a tunnel,
// such as ssh -L, or set [Options.Allow]. Mount the page outside the gate, ideally on its own port: a page that is shed
// in an overload is of no use. Keys of clients are not shown unless [Options.Keys] is set.
package console
