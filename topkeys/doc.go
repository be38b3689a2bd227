// Package topkeys finds the keys whose requests are refused most, in bounded memory.
//
//	top := topkeys.New()
//	gate := spillway.New(top, perTenant, shed) // first, so that it learns of every refusal behind it
//	page := console.New(map[string]stats.Source{"api": gate}, &console.Options{Keys: true})
//	...
//	for _, k := range top.Top(time.Now()) {
//		fmt.Printf("%s: %.0f %% of the refusals\n", k.Key, 100*k.Share)
//	}
//
// Keys name clients. So a gate has no such list by default, and the live page shows it only with Options.Keys. The exporters
// for Prometheus, OpenTelemetry and expvar always leave it out.
package topkeys
