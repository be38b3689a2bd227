package breaker_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/breaker"
)

var t0 = time.Date(2026, time.March, 29, 0, 59, 58, 765432101, time.UTC)

// A rig drives one policy in virtual time.
type rig struct {
	t    testing.TB
	p    spillway.Policy
	now  time.Time
	held map[string]call
}

type call struct {
	r spillway.Request
	t spillway.Ticket
}

func newRig(t testing.TB, p spillway.Policy) *rig {
	return &rig{t: t, p: p, now: t0, held: map[string]call{}}
}

func newBreakerRig(t testing.TB, o *breaker.Options) (*rig, *breaker.Breaker) {
	b := newBreaker(t, o)
	return newRig(t, b), b
}

func (g *rig) admit() (call, error) { return g.admitKey("") }

func (g *rig) admitKey(key string) (call, error) {
	r := spillway.Request{Key: key, Arrived: g.now}
	t, err := g.p.Admit(context.Background(), r)
	return call{r, t}, err
}

func (g *rig) done(c call, o spillway.Outcome) { g.doneRetryAfter(c, o, 0) }

func (g *rig) doneRetryAfter(c call, o spillway.Outcome, d time.Duration) {
	g.p.Done(c.r, c.t, spillway.Result{Outcome: o, Latency: g.now.Sub(c.r.Arrived), RetryAfter: d})
}

// call runs one call that takes no time and reports whether it was let through.
func (g *rig) call(o spillway.Outcome) bool {
	c, err := g.admit()
	if err == nil {
		g.done(c, o)
	}
	return err == nil
}

var outcomes = map[string]spillway.Outcome{
	"S": spillway.Success, "F": spillway.Failure, "D": spillway.Dropped, "I": spillway.Ignored, "R": spillway.Refused,
}

// run follows a script of words:
//
//	S F D I R      a call is let through and ends so at once; F*10 does it ten times, F@2s takes 2 s
//	>x  x:S        call x is let through; it ends
//	S~2s  x:S~2s   and the server wants to be left alone for 2 s
//	+5s            time passes
//	rej  rej=2s    a call is refused; with this RetryAfter
//	=open          the state
func (g *rig) run(script string) {
	g.t.Helper()
	for i, word := range strings.Fields(script) {
		g.word(strconv.Itoa(i+1)+". "+word, word)
	}
}

func (g *rig) word(at, word string) {
	g.t.Helper()
	word, peace, _ := strings.Cut(word, "~")
	retryAfter, _ := time.ParseDuration(peace)
	name, outcome, ends := strings.Cut(word, ":")
	switch {
	case word[0] == '+':
		d, err := time.ParseDuration(word[1:])
		require.NoError(g.t, err)
		g.now = g.now.Add(d)
	case word[0] == '=':
		require.EqualValues(g.t, word[1:], g.p.(*breaker.Breaker).StatsAt(g.now).State, at)
	case word[0] == '>':
		c, err := g.admit()
		require.NoError(g.t, err, at)
		g.held[word[1:]] = c
	case strings.HasPrefix(word, "rej"):
		g.refused(at, word)
	case ends:
		c, ok := g.held[name]
		require.True(g.t, ok, at)
		delete(g.held, name)
		g.doneRetryAfter(c, outcomes[outcome], retryAfter)
	default:
		g.calls(at, word, retryAfter)
	}
}

func (g *rig) calls(at, word string, retryAfter time.Duration) {
	g.t.Helper()
	word, times, _ := strings.Cut(word, "*")
	n, err := strconv.Atoi(times)
	if err != nil {
		n = 1
	}
	word, latency, _ := strings.Cut(word, "@")
	o, ok := outcomes[word]
	require.True(g.t, ok, at)
	d, _ := time.ParseDuration(latency)
	for range n {
		c, err := g.admit()
		require.NoError(g.t, err, at)
		g.now = g.now.Add(d)
		g.doneRetryAfter(c, o, retryAfter)
	}
}

func (g *rig) refused(at, word string) {
	g.t.Helper()
	_, err := g.admit()
	require.ErrorIs(g.t, err, spillway.ErrRejected, at)
	if _, want, ok := strings.Cut(word, "="); ok {
		d, perr := time.ParseDuration(want)
		require.NoError(g.t, perr)
		require.Equal(g.t, d, retryAfter(g.t, err), at)
	}
}

func retryAfter(t testing.TB, err error) time.Duration {
	t.Helper()
	var rej *spillway.Rejection
	require.ErrorAs(t, err, &rej)
	require.GreaterOrEqual(t, rej.RetryAfter, time.Duration(0))
	return rej.RetryAfter
}
