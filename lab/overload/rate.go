package overload

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/time/rate"
)

// ratePrefix stands before the fraction in the name of a Rate guard.
const ratePrefix = "rate:"

// Rate is a guard that refuses requests above the given fraction of capacity, in requests per second, with 503. It is a
// token bucket that holds a tenth of a second. It knows the capacity, which an adaptive guard has to find out.
func Rate(fraction, capacity float64) Guard {
	return Guard{Name: ratePrefix + strconv.FormatFloat(fraction, 'g', -1, 64), Wrap: func(h http.Handler) (http.Handler, StatsFunc, error) {
		perSecond := fraction * capacity
		if !(perSecond > 0) {
			return nil, nil, fmt.Errorf("overload: rate: fraction and capacity must be above 0, got %g and %g", fraction, capacity)
		}
		bucket := rate.NewLimiter(rate.Limit(perSecond), max(1, int(perSecond/10)))
		var admitted, refused atomic.Int64
		guarded := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !bucket.Allow() {
				refused.Add(1)
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			admitted.Add(1)
			h.ServeHTTP(w, r)
		})
		return guarded, func() View { return View{Admitted: Known(admitted.Load()), Refused: Known(refused.Load())} }, nil
	}}
}

// rateOf finds a Rate guard by its name, if it is one.
func (c *Config) rateOf(name string) (g Guard, ok bool, err error) {
	text, ok := strings.CutPrefix(name, ratePrefix)
	if !ok {
		return g, false, nil
	}
	fraction, err := strconv.ParseFloat(text, 64)
	if err != nil || !(fraction > 0 && fraction <= maxLoad) {
		return g, true, fmt.Errorf("overload: guard %q: the fraction must be above 0 and at most %d", name, maxLoad)
	}
	return Rate(fraction, c.capacity), true, nil
}
