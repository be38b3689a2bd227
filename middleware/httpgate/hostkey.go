package httpgate

import (
	"net/http"
	"strings"
)

// HostKey returns the host and port that r goes to, in a normal form: lower case, without the default port of the scheme
// and without the dot at the end of a full domain name. It allocates nothing if they are in that form already.
//
// If the hosts come from outside, use a policy that bounds its number of keys.
func HostKey(r *http.Request) string {
	host := r.URL.Host
	switch r.URL.Scheme {
	case "https":
		host = strings.TrimSuffix(host, ":443")
	case "http":
		host = strings.TrimSuffix(host, ":80")
	}
	host = strings.TrimSuffix(host, ":")
	if name, port, ok := strings.Cut(host, ".:"); ok {
		host = name + ":" + port
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}
