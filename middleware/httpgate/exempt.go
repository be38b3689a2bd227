package httpgate

import (
	"fmt"
	"net/http"
	"path"
	"slices"
)

// DefaultExempt reports whether r asks for /healthz, /livez, /readyz or /metrics, as [ExemptPaths] would. A service
// without a page under one of these names, but with a handler for all paths, should set Options.Exempt. Otherwise that
// handler runs without the gate.
//
// Profiles are not exempt, because they cost more than most requests. To exempt more, list all paths:
//
//	Exempt: httpgate.ExemptPaths("/healthz", "/metrics", "/debug/pprof/profile")
func DefaultExempt(r *http.Request) bool {
	switch r.URL.Path {
	case "/healthz", "/livez", "/readyz", "/metrics":
		return asksPlainly(r)
	}
	return false
}

// ExemptPaths returns an [Options.Exempt] for requests that ask for one of the paths and nothing else: a GET or HEAD
// for exactly that path, without a query, an encoded character or a host in the request target. So a client cannot
// disguise a request for another page as one for an exempt path.
//
// ExemptPaths panics if a path does not begin with a slash, or is not clean: one with "..", for example.
func ExemptPaths(paths ...string) func(r *http.Request) bool {
	for _, p := range paths {
		if clean := path.Clean(p); len(p) == 0 || p[0] != '/' || clean != p && clean+"/" != p {
			panic(fmt.Sprintf("httpgate: ExemptPaths: paths: must be clean and begin with a slash, got %q", p))
		}
	}
	paths = slices.Clone(paths)
	return func(r *http.Request) bool { return slices.Contains(paths, r.URL.Path) && asksPlainly(r) }
}

// asksPlainly reports whether r reads the path of its URL, and its target is that path.
func asksPlainly(r *http.Request) bool {
	u := r.URL
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) &&
		u.RawPath == "" && u.RawQuery == "" && !u.ForceQuery && u.Host == "" && u.Scheme == "" && u.User == nil && u.Fragment == ""
}
