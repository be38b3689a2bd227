package overload

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// The name of the field, in HTTP and as the key of a trailer in gRPC.
const (
	Header = "Spillway-Overload"
	Key    = "spillway-overload"
)

// The limits of the values that a client accepts.
const (
	maxValid  = 10 * time.Second
	maxReduce = 0.95
	maxText   = 256 // bytes of a value
	maxSrc    = 32  // bytes
	maxDigits = 15  // of an integer in RFC 9651
)

// An Advice is the content of one field.
type Advice struct {
	Level  int64         // no request of a lower priority should be sent
	Reduce float64       // share of those of priority Level that should not be sent either; 0 if everything may be
	Valid  time.Duration // since the answer
	Seq    int64         // within Src
	Src    string        // names a process
}

// value returns the value of the field.
func (a *Advice) value() string {
	b := strconv.AppendInt([]byte("level="), a.Level, 10)
	b = strconv.AppendFloat(append(b, ", reduce="...), math.Round(a.Reduce*1000)/1000, 'f', -1, 64) // three decimals at most
	b = strconv.AppendInt(append(b, ", valid="...), a.Valid.Milliseconds(), 10)
	b = strconv.AppendInt(append(b, ", seq="...), a.Seq, 10)
	return string(b) + `, src="` + a.Src + `"`
}

// Parse reads the value of a field, with Valid and Reduce within the limits of the values that a client accepts. It reports
// false for anything but a dictionary that has the five keys once each, with values of their types. Other keys are ignored if
// their values are numbers, strings, tokens or booleans.
func Parse(text string) (a Advice, ok bool) {
	if len(text) > maxText {
		return a, false
	}
	rest := strings.Trim(text, " ")
	var seen uint
	for {
		var key, value string
		if key, value, rest, ok = member(rest); !ok {
			return Advice{}, false
		}
		bit, good := a.set(key, value)
		if !good || seen&bit != 0 {
			return Advice{}, false
		}
		seen |= bit
		if rest = strings.TrimLeft(rest, " \t"); rest == "" {
			break
		}
		if rest[0] != ',' {
			return Advice{}, false
		}
		rest = strings.TrimLeft(rest[1:], " \t")
	}
	if seen != allKeys {
		return Advice{}, false
	}
	a.Valid, a.Reduce = min(a.Valid, maxValid), min(a.Reduce, maxReduce)
	return a, true
}

// The keys, a bit each.
const (
	keyLevel = 1 << iota
	keyReduce
	keyValid
	keySeq
	keySrc
	allKeys = 1<<iota - 1
)

// set stores one member. It returns the bit of its key, or 0 for a key without a meaning here.
func (a *Advice) set(key, value string) (bit uint, ok bool) {
	switch key {
	case "level":
		a.Level, ok = integer(value)
		return keyLevel, ok
	case "reduce":
		a.Reduce, ok = decimal(value)
		return keyReduce, ok && a.Reduce >= 0 && a.Reduce <= 1
	case "valid":
		var ms int64
		ms, ok = integer(value)
		a.Valid = time.Duration(min(ms, maxValid.Milliseconds())) * time.Millisecond
		return keyValid, ok && ms >= 0
	case "seq":
		a.Seq, ok = integer(value)
		return keySeq, ok && a.Seq >= 0
	case "src":
		if len(value) < 3 || len(value) > maxSrc+2 || value[0] != '"' || strings.Contains(value, `\`) {
			return 0, false
		}
		a.Src = value[1 : len(value)-1]
		return keySrc, true
	}
	return 0, true
}

// member splits the first member off: a key, and a bare item as it stands there.
func member(s string) (key, value, rest string, ok bool) {
	n := 0
	for n < len(s) && (s[n] >= 'a' && s[n] <= 'z' || n > 0 && (isDigit(s[n]) || strings.IndexByte("_-.*", s[n]) >= 0) || s[n] == '*') {
		n++
	}
	if n == 0 || n+1 >= len(s) || s[n] != '=' {
		return "", "", "", false
	}
	key, s = s[:n], s[n+1:]
	if n = item(s); n == 0 {
		return "", "", "", false
	}
	return key, s[:n], s[n:], true
}

// item returns the length of the bare item that s begins with, or 0.
func item(s string) int {
	switch c := s[0]; {
	case c == '"':
		return text(s)
	case c == '?' && len(s) > 1 && (s[1] == '0' || s[1] == '1'):
		return 2
	case c == '-' || isDigit(c):
		n := 1
		for n < len(s) && (isDigit(s[n]) || s[n] == '.') {
			n++
		}
		if _, ok := decimal(s[:n]); !ok {
			return 0
		}
		return n
	case c == '*' || c|0x20 >= 'a' && c|0x20 <= 'z':
		n := 1
		for n < len(s) && (isDigit(s[n]) || s[n]|0x20 >= 'a' && s[n]|0x20 <= 'z' || strings.IndexByte("!#$%&'*+-.^_`|~:/", s[n]) >= 0) {
			n++
		}
		return n
	}
	return 0
}

// text returns the length of the string that s begins with, or 0.
func text(s string) int {
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == '"':
			return i + 1
		case s[i] == '\\':
			if i++; i == len(s) || s[i] != '"' && s[i] != '\\' {
				return 0
			}
		case s[i] < ' ' || s[i] > '~':
			return 0
		}
	}
	return 0
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// integer reads an integer of RFC 9651.
func integer(s string) (n int64, ok bool) {
	digits := strings.TrimPrefix(s, "-")
	if len(digits) == 0 || len(digits) > maxDigits {
		return 0, false
	}
	for i := range len(digits) {
		if !isDigit(digits[i]) {
			return 0, false
		}
		n = n*10 + int64(digits[i]-'0')
	}
	if len(digits) < len(s) {
		n = -n
	}
	return n, true
}

// decimal reads an integer or a decimal of RFC 9651: at most twelve digits, a point, and one to three digits.
func decimal(s string) (x float64, ok bool) {
	whole, part, found := strings.Cut(s, ".")
	n, ok := integer(whole)
	if !ok || !found {
		return float64(n), ok
	}
	if len(strings.TrimPrefix(whole, "-")) > 12 || len(part) > 3 || part == "" {
		return 0, false
	}
	f, ok := integer(part)
	if !ok || part[0] == '-' {
		return 0, false
	}
	x = float64(f)
	for range part {
		x /= 10
	}
	if whole[0] == '-' {
		return float64(n) - x, true
	}
	return float64(n) + x, true
}
