// Limits draws how each static limit treats the same requests: a steady few, and one burst. The limits are the real
// ones, asked in virtual time.
//
//	go run ./examples/limits -o docs/limits.svg
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/usage"
	"github.com/spillway-go/spillway/limiter"
)

const about = `limits draws how each static limit treats the same requests, a steady few and
one burst, as an SVG picture. It takes no time: the limits are asked in virtual
time.`

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "limits:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	flags := usage.New("limits", about, out)
	file := flags.String("o", "", "write the picture to this file instead of the standard output")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	picture := draw(rows())
	if *file == "" {
		_, err := io.WriteString(out, picture)
		return err
	}
	return os.WriteFile(*file, []byte(picture), 0o644) //nolint:gosec // a picture for everybody
}

// Every limit here allows ten a second.
const (
	perSecond = 10
	length    = 5 * time.Second
	runs      = 500 * time.Millisecond // how long a request takes, for limits on the requests in flight
)

// arrivals are 4 requests a second, and 30 more within 0.3 s from 1.9 s on, so that the burst crosses the end of a window of a
// second. All times are multiples of 10 ms.
func arrivals() (at []time.Duration) {
	const step = 10 * time.Millisecond
	for t := time.Duration(0); t < length; t += step {
		if t%(250*time.Millisecond) == 0 {
			at = append(at, t)
		}
		if t >= 1900*time.Millisecond && t < 2200*time.Millisecond {
			at = append(at, t)
		}
	}
	return at
}

// A row is one limit and the times at which it admitted requests.
type row struct {
	name, settings string
	passed         []time.Duration
}

func rows() []row {
	rate := limiter.Per(perSecond, time.Second)
	return []row{
		{"asked for", "4 per second, a burst of 30", arrivals()},
		{"Bucket", "burst of 10", play(spillway.Must(limiter.New(limiter.Bucket{Rate: rate, Burst: perSecond})))},
		{"Bucket, small burst", "burst of 3", play(spillway.Must(limiter.New(limiter.Bucket{Rate: rate, Burst: 3})))},
		{"Shaper", "waits of up to 1 s", play(spillway.Must(limiter.New(limiter.Shaper{Rate: rate})))},
		{"FixedWindow", "windows of 1 s", play(spillway.Must(limiter.New(limiter.FixedWindow{
			Limit: perSecond, Period: time.Second,
		})))},
		// With sub-windows of 10 ms, as the arrivals have, it does not matter when they begin.
		{"SlidingWindow", "of 1 s", play(spillway.Must(limiter.New(limiter.SlidingWindow{
			Limit: perSecond, Window: time.Second, Buckets: 100,
		})))},
		{"SlidingLog", "of 1 s", play(spillway.Must(limiter.New(limiter.SlidingLog{
			Limit: perSecond, Window: time.Second,
		})))},
		{"WarmUp", "cold after 1 s of rest", play(spillway.Must(limiter.New(limiter.WarmUp{
			Rate: rate, WarmUp: time.Second,
		})))},
		{"Concurrency", "5 at once, of 0.5 s each", hold(spillway.Must(limiter.New(limiter.Concurrency{
			Limit: int(perSecond * int64(runs) / int64(time.Second)),
		})))},
	}
}

// play returns the times at which a limit admits the arrivals. Only a Shaper makes them wait.
func play(l limiter.Limiter) (passed []time.Duration) {
	start, patience := time.Now(), time.Duration(0)
	if q, ok := l.(interface{ Queues() bool }); ok && q.Queues() {
		patience = length
	}
	for _, at := range arrivals() {
		if r, err := l.ReserveAt(start.Add(at), 1, patience); err == nil {
			passed = append(passed, at+r.Delay())
		}
	}
	return passed
}

// hold is play for a limit on the requests in flight.
func hold(c limiter.Limiter) (passed []time.Duration) {
	ended := 0 // of passed
	for _, at := range arrivals() {
		for ; ended < len(passed) && passed[ended]+runs <= at; ended++ {
			c.Release(1)
		}
		if c.Allow() {
			passed = append(passed, at)
		}
	}
	return passed
}

// mostWithin returns the greatest number that passed in any interval of d.
func mostWithin(d time.Duration, passed []time.Duration) (most int) {
	first := 0
	for i, at := range passed {
		for at-passed[first] >= d {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}
