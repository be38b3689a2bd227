package limiter

// A Bucket is the [Rule] of a token bucket: it holds up to Burst tokens and gains them at a steady rate, and a request passes
// if it finds as many as it costs. So at most Burst + rate × d requests pass in any time d. It begins full.
//
// A leaky bucket used as a meter is the same rule seen from the other side: it holds Burst, each request pours its cost in, it
// leaks at Rate, and a request that would make it overflow is refused. Its level is [State.Limit] - [State.Remaining]. The leaky
// bucket in which requests wait is a [Shaper].
//
// It is GCRA in integers: exact at any rate from one per day to a billion per second, whatever the pattern of requests.
type Bucket struct {
	// Rate is how fast tokens come back. It has to be set.
	Rate Rate
	// Burst is how many tokens the bucket holds, which is the greatest cost that can ever pass. If Burst is 0, it is
	// Rate.Tokens, or 1 if that is 0. So that nothing is ever rounded, it is at most 2^61 over the ns that Rate has for one
	// token, as a fraction in its lowest terms, and never more than 2^53: 26 000 at one per day, 2.3e9 at one per second.
	Burst int
	// Name is what rejections, metrics and header fields call the limit, in printable ASCII. If Name is empty, it is
	// "token bucket".
	Name string
}

func (r Bucket) plan() (p plan[gcraState], err error) {
	const kind = "Bucket"
	g, err := newGCRA(kind, r.Rate, r.Burst, "Burst")
	if err != nil {
		return p, err
	}
	r.Burst = int(g.burst)
	r.Name, err = named(kind, r.Name, "token bucket")
	return plan[gcraState]{rule: r, kind: kind, name: r.Name, reason: ReasonRate, core: g}, err
}

func (r Bucket) keyed(maxKeys int) (keyedLimits, error) { return newKeyedLimits(maxKeys, r) }
