// Package rules changes the numbers of running policies from a file or a store, all or none.
//
//	set, err := rules.New(map[string]rules.Target{"api": rules.Of(shed), "tenants": rules.Of(keyed), "db": rules.Of(brk)})
//	...
//	w, err := set.Follow(rules.File("/etc/shop/rules.json"), nil)
//	...
//	defer w.Close()
//
// The program has the structure: which policies there are, and in which order a gate asks them. A document gives their numbers,
// in the field names of the Go documentation, with durations and rates as text:
//
//	{"rules": {"api": {"SLO": "250ms"}, "tenants": {"Rate": "100/s", "Burst": 200}}}
//
// A document cannot add or remove a policy. It is the whole truth: a field that it omits has its built value, which is the
// one that the policy had in [New]. So two processes with the same document behave alike, whatever they read before. A field
// that is 0 has its default, as in Go. That differs from the built value where a default follows another field, such as the
// Burst of a bucket.
//
// # All or nothing
//
// A document is bad if it is missing, empty, cut short or of a newer schema. It is also bad if it has an unknown field, a key
// twice, or a value out of bounds. Then the numbers of the last good document stay. There is one line in the log, and [Stats]
// and the metrics of the [Set] count it. Alert on the metric spillway.rules.age: it grows until the source has a valid document
// again.
//
// A document is checked for every target before the first target changes, and the bounds of [Target.Between] hold whatever it
// says. A document with the content of the one in force changes nothing, and neither does one with the same numbers for a
// target: windows, tokens and states stay.
//
// # What a request sees
//
// Each target changes at once: no request sees some of its new numbers and some of its old ones. The targets of a Set change
// one after the other, within microseconds, in the order of their names. A request that meets two policies in that moment may
// see the new numbers of one and the old ones of the other. Put numbers that must change together into one target.
package rules
