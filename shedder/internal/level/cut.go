package level

import "math"

const (
	leastBy  = 0.05 // share of a class with a key, below which keys do not decide
	crowd    = 0.9  // share of the admitted requests with a key up to which light keys are served in full
	steady   = 8    // sampled requests in a window, from which on a key is heavy: its rate is known to about 25 %
	unequal  = 1.05 // share of the requests of the lightest keys that passes, as a multiple of the mean, to be worth a cut
	fewKeyed = 16   // remembered requests of a class, below which keys do not decide

	// unlike is the ratio of the times of requests of two keys from which on they are of different kinds, as if keys were
	// routes. To prefer one of them would change what the service can carry, and the limit is learnt for the present mix.
	unlike = 2
)

// A cut says which requests of a class pass.
type cut struct {
	keyless float64 // share of the requests without a key
	light   float64 // share of the light keys; no key has a greater share
	level   float64 // requests per window of any other key
	decides bool    // keys decide
	within  float64 // part of the requests with a key whose keys are cut by nothing
}

// all lets everything pass.
func all() cut { return alike(1) }

// alike lets a share pass, whatever the key.
func alike(pass float64) cut { return cut{keyless: pass, light: pass, level: math.Inf(1)} }

const (
	perOctave = 4              // rates that are counted apart, for each doubling
	bins      = 32 * perOctave // from one request in the window on
)

// Rates are the requests of a class by the rates of their keys.
type rates struct {
	ready   bool // enough is known of keys to compare them; not so after a cold start in an overload
	n       int
	count   [bins]float64 // requests
	inverse [bins]float64 // sums of 1/rate
	timed   [bins]float64 // requests of keys whose time is known
	time    [bins]float64 // sums of these times
}

// add counts a request of a key that sends rate requests in a window, which take a time, or 0 if that is unknown.
func (r *rates) add(rate, time float64) {
	rate = min(max(rate, 1), 1<<31)
	bin := int(math.Log2(rate) * perOctave)
	r.n++
	r.count[bin]++
	r.inverse[bin] += 1 / rate
	if time > 0 {
		r.timed[bin]++
		r.time[bin] += time
	}
}

// upper returns the rate at the end of a bin.
func upper(bin int) float64 { return math.Exp2(float64(bin+1) / perOctave) }

// cut returns how to let a share of the requests pass. Keys of up to floor requests per window are light: their rates
// cannot be told apart. It is [alike] if that would treat all keys the same.
func (r *rates) cut(pass, floor float64) cut {
	if pass = max(pass, 0); !(pass < 1) {
		return all()
	}
	if r.n < fewKeyed {
		return alike(pass)
	}
	// All light keys count as if they sent the mean of them.
	first := min(max(int(math.Log2(floor)*perOctave)-1, 0), bins-1)
	heavy, light, keys := *r, 0.0, 0.0
	for i := range first + 1 {
		light, keys = light+r.count[i], keys+r.inverse[i]
		heavy.count[i], heavy.inverse[i] = 0, 0
	}
	both, mean := heavy, light/max(keys, 1e-12)
	at := min(max(int(math.Log2(max(mean, 1))*perOctave), 0), first)
	both.count[at], both.inverse[at] = light, keys
	n := float64(r.n)
	c := cut{keyless: pass, level: both.fill(pass * n), decides: true}
	c.light = min(1, c.level/max(mean, 1e-12))
	if most := max(min(light, crowd*pass*n), pass*light); light*c.light > most {
		c.light = most / light
		c.level = c.light * heavy.fill((pass*n-most)/c.light)
	}
	if light < n/recents && c.level/heavy.least() < unequal*pass {
		return alike(pass)
	}
	if light < n && (!r.ready || !r.comparable(&c, pass, first)) {
		c = alike(pass)
		c.decides = light >= n/2
		return c
	}
	if c.light == 1 {
		c.within = light / n
		for i := first + 1; i < bins && upper(i) <= c.level; i++ {
			c.within += r.count[i] / n
		}
	}
	return c
}

// comparable reports whether the keys that gain by c have requests that take about as long as those of the keys that
// lose.
func (r *rates) comparable(c *cut, pass float64, first int) bool {
	var gained, gainedTime, lost, lostTime float64
	for i, n := range r.timed {
		if n == 0 {
			continue
		}
		p := c.light
		if i > first {
			p = min(p, c.level*r.inverse[i]/r.count[i])
		}
		if d := p - pass; d > 0 {
			gained, gainedTime = gained+d*n, gainedTime+d*r.time[i]
		} else {
			lost, lostTime = lost-d*n, lostTime-d*r.time[i]
		}
	}
	if gained == 0 || lost == 0 {
		return true
	}
	ratio := gainedTime / gained * lost / lostTime
	return ratio < unlike && ratio > 1/unlike
}

// fill returns the level at which a number of requests passes, if each key is admitted up to the level.
func (r *rates) fill(pass float64) float64 {
	cut := 0.0 // requests that pass of the keys above the level, for a level of 1
	for _, v := range r.inverse {
		cut += v
	}
	for i, n := range r.count {
		if n == 0 {
			continue
		}
		if cut*upper(i) >= pass {
			return max(pass, 0) / cut
		}
		pass -= n
		cut -= r.inverse[i]
	}
	return math.Inf(1)
}

// least returns the rate that all but a few requests reach.
func (r *rates) least() float64 {
	few := 0.0
	for i, n := range r.count {
		if few += n; few > 2 {
			return n / r.inverse[i]
		}
	}
	return 1
}
