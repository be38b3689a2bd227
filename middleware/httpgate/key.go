package httpgate

import (
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/spillway-go/spillway"
)

// keySeparator stands between the parts of a key. escapeKey removes it from the parts, so that different parts never
// make the same key.
const keySeparator = "\x1f"

//nolint:gochecknoglobals // never changed
var escapeKey = strings.NewReplacer("\x1e", "\x1e\x1e", "\x1f", "\x1e_")

// KeyBy returns an [Options.Request] that sets only the key of a request. It uses one key or combines several, for
// example for a limit per tenant and route. Keys are functions such as [ClientIP.Key] and the results of [HeaderKey]
// and [PatternKey]. Several keys cost an allocation. Different parts never make the same key.
//
// KeyBy panics without a key, or if one is nil.
func KeyBy(keys ...func(r *http.Request) string) func(r *http.Request) spillway.Request {
	checkKeys("KeyBy", keys)
	if len(keys) == 1 {
		key := keys[0]
		return func(r *http.Request) spillway.Request { return spillway.Request{Key: key(r)} }
	}
	keys = slices.Clone(keys)
	return func(r *http.Request) spillway.Request {
		var room [4]string
		parts := room[:0]
		for _, key := range keys {
			parts = append(parts, escapeKey.Replace(key(r)))
		}
		return spillway.Request{Key: strings.Join(parts, keySeparator)}
	}
}

// FirstKey returns the first key that is not empty, for example the tenant of a request or else the address of its
// client. It is empty if all keys are empty. Like the keys of [KeyBy], the result can be a part of another key.
//
// Equal keys of two functions stay apart, so no client can use the address of another client as its name. A key of the
// n-th function gets n-1 characters U+001F as a prefix. Adding them costs an allocation.
//
// FirstKey panics without a key, or if one is nil.
func FirstKey(keys ...func(r *http.Request) string) func(r *http.Request) string {
	checkKeys("FirstKey", keys)
	keys = slices.Clone(keys)
	prefix := strings.Repeat(keySeparator, len(keys)-1)
	return func(r *http.Request) string {
		for i, key := range keys {
			if k := key(r); k != "" {
				return prefix[:i] + escapeKey.Replace(k)
			}
		}
		return ""
	}
}

// checkKeys panics if there are no keys, or if one is nil.
func checkKeys(name string, keys []func(r *http.Request) string) {
	if len(keys) == 0 {
		panic("httpgate: " + name + ": keys: must be at least 1, got 0")
	}
	for i, key := range keys {
		if key == nil {
			panic(fmt.Sprintf("httpgate: %s: keys: key %d is nil", name, i))
		}
	}
}

// HeaderKey returns a key function for the value of a header field, such as an API key or the user name from an
// authenticating proxy. Requests without the field, or with more than one, share the empty key. It allocates nothing.
//
// If none of your proxies removes or overwrites the field, the client can put anything into it. A client that varies
// the value then gets a fresh share each time. In that case limit by [ClientIP] too.
//
// HeaderKey panics if name is not the name of a header field, and for Host, which is [http.Request.Host] instead.
func HeaderKey(name string) func(r *http.Request) string {
	if !validField(name) {
		panic(fmt.Sprintf("httpgate: HeaderKey: name: must be a header field, got %q", name))
	}
	name = http.CanonicalHeaderKey(name)
	return func(r *http.Request) string {
		if values := r.Header[name]; len(values) == 1 {
			return values[0]
		}
		return ""
	}
}

// PatternKey returns a key function for the route pattern of a request, such as "GET /items/{id}", for [KeyBy] or for
// the Route of a [spillway.Request]. Requests without a matching pattern share the empty key. So do requests that the mux redirects to
// another path, and every CONNECT. This way clients cannot create keys by asking for missing pages, or distort the
// learned latency of a page by requests that are redirected.
//
// A gate around a mux runs before there is a pattern, so PatternKey asks mux, which finds the route twice. If mux is
// nil, the key is [http.Request.Pattern], for a gate inside a mux.
func PatternKey(mux *http.ServeMux) func(r *http.Request) string {
	if mux == nil {
		return func(r *http.Request) string {
			if r.Method == http.MethodConnect {
				return ""
			}
			return r.Pattern
		}
	}
	redirects := reflect.TypeOf(http.RedirectHandler("/", http.StatusTemporaryRedirect))
	return func(r *http.Request) string {
		if r.Method == http.MethodConnect { // whose pattern would be its target
			return ""
		}
		h, pattern := mux.Handler(r)
		if reflect.TypeOf(h) == redirects {
			return ""
		}
		return pattern
	}
}

// validField reports whether name is a token other than host, which net/http moves out of the header.
func validField(name string) bool {
	return validToken(name) && http.CanonicalHeaderKey(name) != "Host"
}

// validToken reports whether s is a token (RFC 9110).
func validToken(s string) bool {
	for _, c := range []byte(s) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0:
		default:
			return false
		}
	}
	return s != ""
}
