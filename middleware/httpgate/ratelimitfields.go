package httpgate

import (
	"math/bits"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway"
)

// The names of the fields, in the form that http.Header looks for.
const (
	fieldPolicy     = "Ratelimit-Policy"
	fieldLimit      = "Ratelimit"
	fieldXLimit     = "X-Ratelimit-Limit"
	fieldXRemaining = "X-Ratelimit-Remaining"
	fieldXReset     = "X-Ratelimit-Reset"
)

const (
	forever    = longRetryAfter * time.Second
	maxInteger = 999_999_999_999_999 // the greatest integer of a structured field
)

// figures are the values of the fields for one limit.
type figures struct {
	name      string
	q, w      int64 // q is the amount per w seconds; w is 0 if the limit has no window
	remaining int64
	t         int64         // seconds until there is more, or -1 if that is not reported
	reset     time.Duration // what t was made of
}

func newFigures(q *spillway.Quota) figures {
	f := figures{name: q.Name, q: max(q.Limit, 0), remaining: min(max(q.Remaining, 0), maxInteger), t: -1, reset: q.Reset}
	if q.Window > 0 && q.Window < forever {
		f.w = seconds(q.Window)
		f.q = scaled(f.q, f.w, q.Window)
	}
	f.q = min(f.q, maxInteger)
	if q.Reset < forever {
		f.t = seconds(q.Reset)
	}
	return f
}

// seconds rounds d up.
func seconds(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((d-1)/time.Second) + 1
}

// scaled returns the amount for w seconds if each window gives q, rounded down. A window in whole ns may be longer than
// the true one by less than 1 ns; if that makes the difference, it is rounded up.
func scaled(q, w int64, window time.Duration) int64 {
	hi, lo := bits.Mul64(uint64(q), uint64(w)*uint64(time.Second))
	if hi >= uint64(window) {
		return maxInteger
	}
	n, rest := bits.Div64(hi, lo, uint64(window))
	if rest > 0 && uint64(window)-rest <= n+1 {
		n++
	}
	return int64(min(n, maxInteger))
}

// policySlots is the number of cached policy texts. More than one is needed if a limit has different limits for
// different clients.
const policySlots = 16

// policies are the parts of the fields that seldom change.
type policies struct {
	figs   []figures
	line   []string   // the value of RateLimit-Policy
	names  []string   // as strings of structured fields
	quotas [][]string // the values of X-RateLimit-Limit
	kept   atomic.Pointer[kept]
}

// policiesOf returns the policies of figs, in text.
func (l *RateLimit) policiesOf(figs []figures) *policies {
	var hash uint64
	for i := range figs {
		hash = (hash ^ uint64(figs[i].q) ^ uint64(figs[i].w)<<32) * 0x9e3779b97f4a7c15
	}
	slot := &l.policies[hash>>(64-4)]
	if p := slot.Load(); p != nil && p.fit(figs) {
		return p
	}
	p := newPolicies(figs)
	slot.Store(p)
	return p
}

func (p *policies) fit(figs []figures) bool {
	if len(p.figs) != len(figs) {
		return false
	}
	for i := range figs {
		if f, g := &p.figs[i], &figs[i]; f.q != g.q || f.w != g.w || f.name != g.name {
			return false
		}
	}
	return true
}

func newPolicies(figs []figures) *policies {
	p := &policies{figs: append([]figures(nil), figs...)}
	var line []byte
	for i := range figs {
		name := string(appendString(nil, figs[i].name))
		quota := strconv.FormatInt(figs[i].q, 10)
		p.names = append(p.names, name)
		p.quotas = append(p.quotas, []string{quota})
		if i > 0 {
			line = append(line, ", "...)
		}
		line = append(append(append(line, name...), ";q="...), quota...)
		if figs[i].w > 0 {
			line = strconv.AppendInt(append(line, ";w="...), figs[i].w, 10)
		}
	}
	p.line = []string{string(line)}
	return p
}

// appendString appends s as a string of structured fields. Characters that such a string cannot hold, which could also
// break the header, become question marks.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	for _, c := range []byte(s) {
		switch {
		case c < ' ' || c > '~':
			c = '?'
		case c == '"' || c == '\\':
			b = append(b, '\\')
		}
		b = append(b, c)
	}
	return append(b, '"')
}

// write sets the fields. In a flood most answers are the same refusal, so its text is kept.
func (l *RateLimit) write(h http.Header, figs []figures, refused bool) {
	p := l.policiesOf(figs)
	least := leastRemaining(figs)
	var values []string
	if k := p.kept.Load(); refused && k != nil && k.fit(figs) {
		values = k.values
	} else {
		values = p.render(figs, least)
		if refused {
			p.kept.Store(&kept{append([]figures(nil), figs...), values})
		}
	}
	if l.Draft || !l.X {
		add(h, fieldPolicy, p.line)
		add(h, fieldLimit, values[:1:1])
	}
	if l.X {
		setX(h, figs[least].remaining, p.quotas[least], values[1:2:2], values[2:])
	}
}

// kept is the cached text for some figures.
type kept struct {
	figs   []figures
	values []string
}

func (k *kept) fit(figs []figures) bool {
	for i := range figs {
		if f, g := &k.figs[i], &figs[i]; f.remaining != g.remaining || f.t != g.t {
			return false
		}
	}
	return true
}

// render returns the value of RateLimit and, as parts of it, the r and t of the limit that has the least remaining.
func (p *policies) render(figs []figures, least int) []string {
	var room [256]byte
	b := room[:0]
	var r, t [2]int // where the r and t of the least are
	for i := range figs {
		f := &figs[i]
		if i > 0 {
			b = append(b, ", "...)
		}
		b = append(append(b, p.names[i]...), ";r="...)
		from := len(b)
		b = strconv.AppendInt(b, f.remaining, 10)
		if i == least {
			r = [2]int{from, len(b)}
		}
		if f.t < 0 {
			continue
		}
		b = append(b, ";t="...)
		from = len(b)
		b = strconv.AppendInt(b, f.t, 10)
		if i == least {
			t = [2]int{from, len(b)}
		}
	}
	text := string(b)
	return []string{text, text[r[0]:r[1]], text[t[0]:t[1]]}
}

// leastRemaining returns the index of the limit that has the least remaining, and among equals the one that takes
// longest to have more.
func leastRemaining(figs []figures) (least int) {
	for i := 1; i < len(figs); i++ {
		f, g := &figs[i], &figs[least]
		if f.remaining < g.remaining || f.remaining == g.remaining && f.reset > g.reset {
			least = i
		}
	}
	return least
}

// add adds a shared value, or shares it if there is none yet.
func add(h http.Header, field string, value []string) {
	if before := h[field]; len(before) > 0 {
		h[field] = append(before, value...)
		return
	}
	h[field] = value
}

// setX sets the X fields, unless an outer gate has already set them with less remaining.
func setX(h http.Header, n int64, limit, remaining, reset []string) {
	if before := h[fieldXRemaining]; len(before) > 0 {
		if less, err := strconv.ParseInt(before[0], 10, 64); err == nil && less <= n {
			return
		}
	}
	h[fieldXLimit] = limit
	h[fieldXRemaining] = remaining
	if reset[0] == "" {
		delete(h, fieldXReset)
		return
	}
	h[fieldXReset] = reset
}
