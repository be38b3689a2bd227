package httpgate

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spillway-go/spillway/internal/overload"
)

// listenTo returns the hosts with the given names, or nil if there are none.
func listenTo(names []string) (*overload.Hosts, error) {
	for i, name := range names {
		if name == "" || strings.ContainsAny(name, "/ @") || name != strings.ToLower(name) || endsIn(name, ":80", ":443", ":", ".") {
			return nil, fmt.Errorf(
				`httpgate: ListenTo[%d]: must be a host as HostKey returns it, such as "api.example" or "127.0.0.1:8080", got %q`, i, name)
		}
	}
	return overload.NewHosts(names, time.Now()), nil
}

// endsIn reports whether name ends in one of the endings.
func endsIn(name string, endings ...string) bool {
	return slices.ContainsFunc(endings, func(end string) bool { return strings.HasSuffix(name, end) })
}

// hostOf returns what is known about the host of r, or nil if the Transport does not listen to it.
func (t *Transport) hostOf(r *http.Request) *overload.Host {
	if t.hosts == nil {
		return nil
	}
	return t.hosts.Of(HostKey(r))
}

// listen takes in what the server says in its answer.
func (c *call) listen(res *http.Response) {
	field := res.Header[overload.Header]
	c.host.Answered(c.level, field, c.outcome, time.Now())
	if field != nil {
		delete(res.Header, overload.Header)
	}
}

// unsent closes the body of a request that is not sent, and returns err.
func unsent(r *http.Request, err error) error {
	if r.Body != nil {
		r.Body.Close()
	}
	return err
}
