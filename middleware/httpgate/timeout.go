package httpgate

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// ClientTimeout returns how long the client of r waits for the answer, by the header field of its protocol: Grpc-Timeout
// of a call of gRPC, Connect-Timeout-Ms, or X-Envoy-Expected-Rq-Timeout-Ms, which Envoy sends to the services behind
// it. The shortest counts; 0 means that it is not known. Use it in [Options.Request], where it may be shortened:
//
//	Timeout: min(cmp.Or(httpgate.ClientTimeout(r), 2*time.Second), 2*time.Second)
//
// A client that lies harms itself, by a refusal. But a shared cache in front of the service may keep that refusal for
// others, although it is marked as no-store. So remove the fields there, or do not read them.
func ClientTimeout(r *http.Request) time.Duration {
	wait := protocolTimeout(r)
	if values := r.Header["X-Envoy-Expected-Rq-Timeout-Ms"]; len(values) > 0 {
		if byEnvoy := timeout(values[0], time.Millisecond); byEnvoy > 0 && (wait == 0 || byEnvoy < wait) {
			return byEnvoy
		}
	}
	return wait
}

// protocolTimeout returns the timeout that the client of r sent and that servers of gRPC and Connect obey, or 0.
func protocolTimeout(r *http.Request) time.Duration {
	if values := r.Header[grpcTimeout]; len(values) > 0 && isGRPC(r) {
		return max(timeout(values[0], 0), noTime(values[0]))
	}
	if values := r.Header["Connect-Timeout-Ms"]; len(values) > 0 {
		return max(timeout(values[0], time.Millisecond), noTime(values[0]))
	}
	return 0
}

// noTime returns the shortest timeout if value is a timeout of 0, which a server of gRPC or Connect takes at its word, or
// else 0.
func noTime(value string) time.Duration {
	if digits := strings.TrimRight(value, "HMSmun"); digits != "" && strings.Trim(digits, "0") == "" {
		return 1
	}
	return 0
}

// TimeoutHeader returns a function that reads the timeout of a request from a header field of your own:
//
//	timeout := httpgate.TimeoutHeader("X-Request-Timeout", time.Second)
//	...
//	Request: func(r *http.Request) spillway.Request { return spillway.Request{Timeout: timeout(r)} }
//
// The value is a decimal number of units. It may name its unit as grpc-timeout does: 5S, 100m, with H, M, S, m, u or n
// for hours to nanoseconds. If unit is 0, the value must name its unit. A missing, zero or invalid header means no
// timeout.
func TimeoutHeader(name string, unit time.Duration) func(r *http.Request) time.Duration {
	name = http.CanonicalHeaderKey(name)
	return func(r *http.Request) time.Duration {
		if values := r.Header[name]; len(values) > 0 {
			return timeout(values[0], unit)
		}
		return 0
	}
}

// maxTimeout stands for every longer timeout, so that a time plus a timeout does not overflow.
const maxTimeout = 365 * 24 * time.Hour

// timeout returns the duration that the value of a timeout header means, or 0.
func timeout(value string, unit time.Duration) time.Duration {
	if value == "" {
		return 0
	}
	if named := unitOf(value[len(value)-1]); named != 0 {
		value, unit = value[:len(value)-1], named
	}
	return decimal(value, unit)
}

// unitOf returns the unit that grpc-timeout names with c, or 0.
func unitOf(c byte) time.Duration {
	switch c {
	case 'H':
		return time.Hour
	case 'M':
		return time.Minute
	case 'S':
		return time.Second
	case 'm':
		return time.Millisecond
	case 'u':
		return time.Microsecond
	case 'n':
		return time.Nanosecond
	}
	return 0
}

// maxDigits bounds what a client can make the gate read; grpc-timeout has at most 8.
const maxDigits = 32

// decimal returns s units, where s is digits with or without a fraction, or 0 for anything else.
func decimal(s string, unit time.Duration) time.Duration {
	if len(s) > maxDigits {
		return 0
	}
	total, scale := 0.0, 0.0 // scale is 0 until the point
	for i := range len(s) {
		switch c := s[i]; {
		case c == '.' && scale == 0:
			scale = 1
		case c < '0' || c > '9':
			return 0
		case scale == 0:
			total = total*10 + float64(c-'0')
		default:
			scale /= 10
			total += float64(c-'0') * scale
		}
	}
	return time.Duration(min(total*float64(unit), float64(maxTimeout)))
}

// The field of gRPC, and how many digits its value may have.
const (
	grpcTimeout   = "Grpc-Timeout"
	grpcTimeoutMs = 99_999_999
)

// passTimeout returns the request to send in place of sent, with the time that the context of r leaves in header field
// name. It returns sent if there is no deadline, or if the field already has a shorter time.
func passTimeout(sent, r *http.Request, name string) *http.Request {
	by, ok := r.Context().Deadline()
	if !ok {
		return sent
	}
	left := time.Until(by)
	if values := sent.Header[name]; len(values) > 0 {
		if has := timeout(values[0], time.Millisecond); has > 0 && has <= left {
			return sent
		}
	}
	if sent == r {
		sent = new(http.Request)
		*sent = *r
	}
	sent.Header = sent.Header.Clone()
	if sent.Header == nil {
		sent.Header = http.Header{}
	}
	sent.Header[name] = []string{timeoutValue(name, left)}
	return sent
}

// timeoutValue returns left in whole milliseconds, as the value of header field name. It is at least 1, because 0 means
// no timeout to some servers.
func timeoutValue(name string, left time.Duration) string {
	ms := max(int64(left/time.Millisecond), 1)
	if name != grpcTimeout {
		return strconv.FormatInt(ms, 10)
	}
	return strconv.FormatInt(min(ms, grpcTimeoutMs), 10) + "m"
}
