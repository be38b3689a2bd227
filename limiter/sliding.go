package limiter

import (
	"fmt"
	"time"

	"github.com/spillway-go/spillway"
)

// A SlidingWindow lets through at most Limit tokens in any Window, with no edges to exploit. It counts in Buckets
// sub-windows, so it takes 16 bytes for each of them, whatever the limit.
//
// What passes counts until the end of its sub-window, and for a Window from then on. So never more than Limit pass in any
// interval of Window, and never fewer than Limit, if that many ask, in any interval of Window × (1 + 1/Buckets): with 60
// Buckets, a caller who asks all the time gets 98.4 % of the limit. A [SlidingLog] is exact.
//
// It is made by [NewSlidingWindow]; the zero SlidingWindow denies everything. All methods may be called concurrently.
type SlidingWindow struct {
	limit[slidingState]
}

// SlidingWindowOptions tune a [SlidingWindow]. Limit and Window have to be set.
type SlidingWindowOptions struct {
	// Limit is how many tokens may pass in any Window, at least 1 and at most 2^53.
	Limit int
	// Window is how long what passed counts.
	Window time.Duration
	// Buckets is the number of sub-windows, at most one for each ns of Window and at most 1000. If Buckets is 0, it is 60.
	Buckets int
	// Name is what rejections, metrics and header fields call the limit, in printable ASCII. If Name is empty, it is
	// "sliding window".
	Name string
}

// A SlidingLog lets through at most Limit tokens in any Window, exactly, by remembering when each of them passed. It takes
// 16 bytes per token of the limit for requests of cost 1 that come one at a time, and at most twice that with reservations. If
// that is too much, take a [SlidingWindow].
//
// It is made by [NewSlidingLog]; the zero SlidingLog denies everything. All methods may be called concurrently.
type SlidingLog struct {
	limit[slidingState]
}

// SlidingLogOptions tune a [SlidingLog]. Limit and Window have to be set.
type SlidingLogOptions struct {
	// Limit is how many tokens may pass in any Window, at least 1 and at most 2^20, which bounds the log to 32 MiB.
	Limit int
	// Window is how long what passed counts.
	Window time.Duration
	// Name is what rejections, metrics and header fields call the limit, in printable ASCII. If Name is empty, it is
	// "sliding log".
	Name string
}

const (
	defaultSlidingBuckets = 60
	maxSlidingBuckets     = 1000
	maxLog                = 1 << 20
)

// NewSlidingWindow returns a SlidingWindow that nobody has used. The error names the field that cannot be right.
func NewSlidingWindow(o *SlidingWindowOptions) (*SlidingWindow, error) {
	var opts SlidingWindowOptions
	if o != nil {
		opts = *o
	}
	if opts.Buckets == 0 {
		opts.Buckets = defaultSlidingBuckets
	}
	if opts.Buckets < 0 || opts.Buckets > maxSlidingBuckets {
		return nil, fmt.Errorf("limiter: SlidingWindow: Buckets must be in 1..%d, got %d", maxSlidingBuckets, opts.Buckets)
	}
	w := new(SlidingWindow)
	// Instants of one window fall into one sub-window more than it has, and there are as many reserved.
	c := &sliding{entries: 2 * (opts.Buckets + 1)}
	if err := setUpSliding(&w.limit, c, "SlidingWindow", opts.Limit, maxLimit, opts.Window, opts.Name, "sliding window"); err != nil {
		return nil, err
	}
	if c.quantum = c.length / int64(opts.Buckets); c.quantum == 0 {
		return nil, fmt.Errorf("limiter: SlidingWindow: Window must have at least one ns per bucket, got %v", opts.Window)
	}
	if c.quantum*int64(opts.Buckets) < c.length {
		c.quantum++
	}
	return w, nil
}

// NewSlidingLog returns a SlidingLog that nobody has used. The error names the field that cannot be right.
func NewSlidingLog(o *SlidingLogOptions) (*SlidingLog, error) {
	var opts SlidingLogOptions
	if o != nil {
		opts = *o
	}
	l := new(SlidingLog)
	c := &sliding{entries: 2 * opts.Limit}
	if err := setUpSliding(&l.limit, c, "SlidingLog", opts.Limit, maxLog, opts.Window, opts.Name, "sliding log"); err != nil {
		return nil, err
	}
	return l, nil
}

func setUpSliding(
	l *limit[slidingState], c *sliding, kind string, limit int, most int64, window time.Duration, name, defaultName string,
) error {
	if err := c.setLimit(kind, limit, most); err != nil {
		return err
	}
	if window <= 0 || window > horizon {
		return fmt.Errorf("limiter: %s: Window must be in 1ns..%v, got %v", kind, time.Duration(horizon), window)
	}
	if err := validateName(kind, name); err != nil {
		return err
	}
	if name == "" {
		name = defaultName
	}
	c.length = int64(window)
	l.make(c, newRejections(name, ReasonQuota, true))
	return nil
}

func (c *sliding) setLimit(kind string, limit int, most int64) error {
	if limit < 1 || int64(limit) > most {
		return fmt.Errorf("limiter: %s: Limit must be in 1..%d, got %d", kind, most, limit)
	}
	c.limit = int64(limit)
	return nil
}

// SetLimit changes how many tokens may pass in any window from now on: what has passed counts. The error says that limit
// cannot be right, and then nothing has changed.
func (w *SlidingWindow) SetLimit(limit int) error {
	return setSlidingLimit(&w.limit, "SlidingWindow", limit, maxLimit)
}

// SetLimit changes how many tokens may pass in any window from now on: what has passed counts. The error says that limit
// cannot be right, and then nothing has changed.
func (l *SlidingLog) SetLimit(limit int) error {
	return setSlidingLimit(&l.limit, "SlidingLog", limit, maxLog)
}

func setSlidingLimit(l *limit[slidingState], kind string, limit int, most int64) error {
	var c sliding
	if err := c.setLimit(kind, limit, most); err != nil {
		return err
	}
	return l.update(readClock(), func(old core[slidingState]) (core[slidingState], error) {
		next := *old.(*sliding) //nolint:forcetypeassert // made by the constructors
		if next.limit = c.limit; next.quantum == 0 {
			next.entries = 2 * limit
		}
		return &next, nil
	})
}

var (
	_ spillway.Policy = (*SlidingWindow)(nil)
	_ spillway.Policy = (*SlidingLog)(nil)
)
