package httpgate

import (
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/spillway-go/spillway"
)

// keySeparator stands between the parts of a key. No part has it: net/http turns down header fields with control
// characters, and the other keys have none.
const keySeparator = "\x1f"

// KeyBy returns an [Options.Request] that says of a request only whose it is, by one key, or by several taken together: a
// limit per tenant and route, for example. Keys are functions such as [ClientIP.Key] and the results of [HeaderKey] and
// [PatternKey]. Several together cost an allocation.
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
			parts = append(parts, key(r))
		}
		return spillway.Request{Key: strings.Join(parts, keySeparator)}
	}
}

// FirstKey returns the first key that is not empty: the tenant of a request, else the address of its client. It is empty if all
// are. Like a key of [KeyBy], the result can be a part of another key.
//
// Equal keys of two functions stay apart, so no client can name itself like the address of another one: before a key that is
// not of the first function stand as many characters U+001F as functions come before its own. Adding them costs an allocation.
//
// FirstKey panics without a key, or if one is nil.
func FirstKey(keys ...func(r *http.Request) string) func(r *http.Request) string {
	checkKeys("FirstKey", keys)
	keys = slices.Clone(keys)
	prefix := strings.Repeat(keySeparator, len(keys)-1)
	return func(r *http.Request) string {
		for i, key := range keys {
			if k := key(r); k != "" {
				return prefix[:i] + k
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

// HeaderKey returns the key that is the value of a header field, such as an API key or what an authenticating proxy says
// of its user. Requests without the field, or with several of it, share the empty key. It allocates nothing.
//
// The client can put anything into a field that no proxy of yours removes or overwrites: every value is a key, and a
// client who varies it has a fresh share each time. Then limit by [ClientIP] too.
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

// PatternKey returns the key that is the pattern of the route of a request, such as "GET /items/{id}", for [KeyBy] or for
// [Deadline.Route]. Requests that fit none share the empty key, and so do those that the mux redirects to another path, and
// every CONNECT: nobody makes keys by asking for pages that are not there, or teaches how quick a page is by asking for it
// in a way that is redirected.
//
// A gate around a mux runs before there is a pattern, so PatternKey asks mux, at the price of finding the route twice. If
// mux is nil, it is [http.Request.Pattern], for a gate inside of a mux.
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
