package cluster

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"time"

	"github.com/spillway-go/spillway/limiter"
)

// A Rule is what a [Limit] allows each key. It is made by [Bucket], [FixedWindow], [SlidingWindow] or
// [SlidingLog], which mean what those of package limiter mean. Rules can be compared.
type Rule struct {
	kind     kind
	name     string
	limit    int64 // greatest cost that can pass
	rate     limiter.Rate
	window   time.Duration
	buckets  int
	calendar limiter.Calendar
	location *time.Location
}

// A kind selects the part of the script for a rule.
type kind byte

const (
	bucketKind   kind = 'b'
	windowKind   kind = 'w'
	calendarKind kind = 'c'
	ringKind     kind = 's'
	logKind      kind = 'l'
)

const (
	// maxTokens bounds the counts of scripts: their numbers are exact up to 2^53 only, and they add two.
	maxTokens = 1 << 52
	// maxMemory is the longest time that a limit remembers.
	maxMemory = 10 * 366 * 24 * time.Hour
	// MaxLog is the greatest limit of a [SlidingLog], which takes up to 110 bytes of Redis for each token.
	MaxLog = 100_000
)

// Bucket returns the rule of a token bucket, as [limiter.Bucket]. It takes 24 bytes of Redis for each key, besides the key.
func Bucket(o limiter.Bucket) Rule {
	return Rule{kind: bucketKind, name: orDefault(o.Name, "token bucket"), rate: o.Rate, limit: burstOf(o.Rate, o.Burst)}
}

// FixedWindow returns the rule of a window that begins with the first request, or is a period of the calendar, as
// [limiter.FixedWindow]. It takes 16 bytes of Redis for each key, besides the key.
func FixedWindow(o limiter.FixedWindow) Rule {
	r := Rule{
		kind: windowKind, name: orDefault(o.Name, "fixed window"), limit: int64(o.Limit),
		window: o.Period, calendar: o.Calendar, location: o.Location,
	}
	if o.Calendar != 0 {
		r.kind = calendarKind
		if r.location == nil {
			r.location = time.UTC
		}
	}
	return r
}

// SlidingWindow returns the rule of a window that moves on in sub-windows, as [limiter.SlidingWindow]. It takes 8 bytes of
// Redis for each sub-window of each key, besides the key.
func SlidingWindow(o limiter.SlidingWindow) Rule {
	r := Rule{
		kind: ringKind, name: orDefault(o.Name, "sliding window"), limit: int64(o.Limit), window: o.Window, buckets: o.Buckets,
	}
	if r.buckets == 0 {
		r.buckets = 60
	}
	return r
}

// SlidingLog returns the rule of an exact sliding window, as [limiter.SlidingLog], with a Limit up to [MaxLog].
func SlidingLog(o limiter.SlidingLog) Rule {
	return Rule{kind: logKind, name: orDefault(o.Name, "sliding log"), limit: int64(o.Limit), window: o.Window}
}

// Name returns the name of the rule in rejections.
func (r Rule) Name() string { return r.name }

// Limit returns the most that the rule gives at once.
func (r Rule) Limit() int64 { return r.limit }

// Window returns the time in which the rule gives that much again.
func (r Rule) Window() time.Duration {
	switch {
	case r.kind == bucketKind && r.rate.Tokens > 0:
		per, drain := r.ticks()
		return time.Duration(ceilDiv(r.limit*per, drain)) * time.Microsecond
	case r.calendar == limiter.EveryMinute:
		return time.Minute
	case r.calendar == limiter.EveryHour:
		return time.Hour
	case r.calendar == limiter.EveryDay:
		return 24 * time.Hour
	case r.calendar == limiter.EveryMonth:
		return 30 * 24 * time.Hour
	}
	return r.window
}

// String returns a text such as "token bucket: 100 per 1s, at most 20 at once".
func (r Rule) String() string {
	switch r.kind {
	case 0:
		return "no rule"
	case bucketKind:
		return fmt.Sprintf("%s: %v, at most %d at once", r.name, r.rate, r.limit)
	}
	return fmt.Sprintf("%s: %d in %v", r.name, r.limit, r.Window())
}

func orDefault(name, def string) string {
	if name == "" {
		return def
	}
	return name
}

func burstOf(rate limiter.Rate, burst int) int64 {
	if burst == 0 {
		burst = max(rate.Tokens, 1)
	}
	return int64(burst)
}

// local returns the rule of package limiter for a share of r: one of so many nodes.
func (r Rule) local(nodes int) (limiter.Rule, error) {
	n := int64(nodes)
	limit := int(max(r.limit/n, 1))
	switch r.kind {
	case bucketKind:
		rate := r.rate
		if int64(rate.Tokens)%n == 0 {
			rate.Tokens /= nodes
		} else {
			rate.Per = min(rate.Per, math.MaxInt64/time.Duration(nodes)) * time.Duration(nodes)
		}
		return limiter.Bucket{Rate: rate, Burst: limit, Name: r.name}, nil
	case windowKind, calendarKind:
		return limiter.FixedWindow{
			Limit: limit, Period: r.window, Calendar: r.calendar, Location: r.location, Name: r.name,
		}, nil
	case ringKind:
		return limiter.SlidingWindow{
			Limit: limit, Window: r.window, Buckets: r.buckets, Name: r.name,
		}, nil
	case logKind:
		return limiter.SlidingLog{Limit: limit, Window: r.window, Name: r.name}, nil
	}
	return nil, errors.New("must be made by Bucket, FixedWindow, SlidingWindow or SlidingLog, got the zero Rule")
}

// most names the field that sets limit.
func (r Rule) most() string {
	if r.kind == bucketKind {
		return "Burst"
	}
	return "Limit"
}

// validate returns an error that names the invalid field, in the words of package limiter where possible.
func (r Rule) validate() error {
	if whole, err := r.local(1); err != nil {
		return err
	} else if _, err = limiter.New(whole); err != nil { // which checks what the two packages have in common
		return err
	}
	if r.limit < 1 {
		return fmt.Errorf("%s: %s must be at least 1, got %d", r.name, r.most(), r.limit)
	}
	switch {
	case r.limit > maxTokens:
		return fmt.Errorf("%s: %s must be at most 2^52, got %d", r.name, r.most(), r.limit)
	case r.kind == logKind && r.limit > MaxLog:
		return fmt.Errorf("%s: Limit must be at most %d, got %d", r.name, MaxLog, r.limit)
	case r.kind == bucketKind:
		return r.validateBucket()
	case r.calendar == 0 && (r.window < time.Millisecond || r.window > maxMemory):
		return fmt.Errorf("%s: window must be in 1ms..%v, got %v", r.name, maxMemory, r.window)
	}
	return nil
}

func (r Rule) validateBucket() error {
	if r.rate.Tokens < 1 || int64(r.rate.Tokens) > maxTokens/1000 {
		return fmt.Errorf("%s: Rate.Tokens must be in 1..2^52/1000, got %d", r.name, r.rate.Tokens)
	}
	per, drain := r.ticks()
	hi, full := bits.Mul64(uint64(r.limit), uint64(per))
	if hi != 0 || full > maxTokens || full/uint64(drain) > uint64(maxMemory/time.Microsecond) {
		return fmt.Errorf("%s: Burst of %d tokens is too much at a rate of %v", r.name, r.limit, r.rate)
	}
	return nil
}

// ticks returns the rate as a fraction in lowest terms: the ticks per token, and the ticks that drain each µs.
func (r Rule) ticks() (per, drain int64) {
	drain, per = int64(r.rate.Tokens)*1000, int64(r.rate.Per)
	x, y := drain, per
	for y != 0 {
		x, y = y, x%y
	}
	return per / x, drain / x
}

// figures is how many arguments of the script describe one rule, besides its kind.
const figures = 5

// args returns these arguments. The last four of a calendar are filled in later.
func (r Rule) args() [figures]int64 {
	switch r.kind {
	case bucketKind:
		per, drain := r.ticks()
		return [figures]int64{per, drain, per * r.limit}
	case ringKind:
		return [figures]int64{r.limit, ceilDiv(micros(r.window), int64(r.buckets)), int64(r.buckets)}
	}
	return [figures]int64{r.limit, micros(r.window)}
}

// micros returns d in µs, rounded up.
func micros(d time.Duration) int64 { return ceilDiv(int64(d), int64(time.Microsecond)) }

func ceilDiv(a, b int64) int64 {
	q := a / b
	if q*b < a {
		q++
	}
	return q
}
