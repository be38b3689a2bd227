// Command tenants shows how a limit per tenant protects the others when one tenant floods the service.
//
//	go run ./examples/tenants
//	go run ./examples/tenants -seconds 10 -limit 200 -json figures.json -report report.html
//
// A real server on the loopback allows each tenant the same number of requests per second, and reports how much is left in the
// header of every answer. One tenant sends 20 times its limit and ignores the answers. The others send 80 % of theirs. They get
// the same answers as without the flood, and the flood gets its limit.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"time"

	"github.com/spillway-go/spillway/internal/usage"
)

const (
	flooding = 20.0 // rate of the flood, as a multiple of its limit
	calm     = 0.8  // rate of each of the others
)

// figures are the result, as -json writes it.
type figures struct {
	Tenants []tenantFigures `json:"tenants"`
}

type tenantFigures struct {
	Name       string  `json:"name"`
	OfferedRPS float64 `json:"offered_rps"` // requests per second that were sent
	ServedRPS  float64 `json:"served_rps"`
	LimitRPS   float64 `json:"limit_rps"`
}

// settings are the flags of the run.
type settings struct {
	seconds float64
	limit   int // requests per second of each tenant
	others  int // tenants beside the flood
}

const about = `tenants shows how a limit per tenant protects the others when one tenant floods
the service. One tenant sends 20 times its limit, the others 80 % of theirs, to
a real server on this machine, for five seconds. Look at "served": the flood
gets its limit, and the others get all that they ask for.`

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "tenants:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	var s settings
	flags := usage.New("tenants", about, out)
	flags.Float64Var(&s.seconds, "seconds", 5, "how long to measure")
	flags.IntVar(&s.limit, "limit", 100, "requests per second that each tenant may do")
	flags.IntVar(&s.others, "others", 4, "tenants beside the flood")
	file := flags.String("json", "", "`FILE` to write the figures to")
	html := flags.String("report", "", "`FILE` to write a page with the figures to")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	if !(s.seconds >= 0.1 && s.seconds <= 3600) || s.limit < 5 || s.limit > 1000 || s.others < 1 || s.others > 50 {
		return fmt.Errorf("seconds must be in 0.1..3600, limit in 5..1000 and others in 1..50, got %v, %d and %d", s.seconds, s.limit, s.others)
	}
	fmt.Fprintf(out, "This takes about %.0f s: one tenant floods a server, the others do not.\n\n", s.seconds+1)
	results, took, err := s.play()
	if err != nil {
		return err
	}
	show(out, s, results, took)
	if *html != "" {
		if err := s.page(tell(s, results, took)).Save(*html); err != nil {
			return err
		}
	}
	if *file == "" {
		return nil
	}
	text, err := json.MarshalIndent(tell(s, results, took), "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(*file, append(text, '\n'), 0o600)
}

// play runs server and clients, and returns the answers of each tenant and the time of the run.
func (s settings) play() (results []result, took time.Duration, err error) {
	server, err := startServer(s.limit)
	if err != nil {
		return nil, 0, err
	}
	defer server.close()
	clients := []*client{startClient(server.addr, tenantName(0), flooding*float64(s.limit), 32)}
	for i := range s.others {
		clients = append(clients, startClient(server.addr, tenantName(i+1), calm*float64(s.limit), 4))
	}
	defer func() {
		for _, c := range clients {
			c.close()
		}
	}()
	// The first second of a bucket is its burst. The measurement starts after it, when the flood is first refused.
	if err := clients[0].waitForRefusal(10 * time.Second); err != nil {
		return nil, 0, err
	}
	began := time.Now()
	before := make([]result, len(clients))
	for i, c := range clients {
		before[i] = c.result()
	}
	time.Sleep(time.Duration(s.seconds * float64(time.Second)))
	took = time.Since(began)
	for i, c := range clients {
		results = append(results, c.result().since(before[i]))
	}
	return results, took, nil
}

// tenantName names the tenants, the flood first.
func tenantName(i int) string {
	if i == 0 {
		return "flood"
	}
	return fmt.Sprintf("calm %d", i)
}

func tell(s settings, results []result, took time.Duration) (f figures) {
	perSecond := func(n int) float64 { return math.Round(10*float64(n)/took.Seconds()) / 10 }
	for i, r := range results {
		f.Tenants = append(f.Tenants, tenantFigures{
			Name: tenantName(i), OfferedRPS: perSecond(r.offered), ServedRPS: perSecond(r.served), LimitRPS: float64(s.limit),
		})
	}
	return f
}

func show(out io.Writer, s settings, results []result, took time.Duration) {
	fmt.Fprintf(out, "%-8s %9s %9s %9s %9s   %s\n", "tenant", "offered/s", "served/s", "limit/s", "served", "its last answer said")
	for i, t := range tell(s, results, took).Tenants {
		r := results[i]
		share := 100 * float64(r.served) / float64(max(r.offered, 1))
		fmt.Fprintf(out, "%-8s %9.1f %9.1f %9.0f %8.1f%%   %s\n", t.Name, t.OfferedRPS, t.ServedRPS, t.LimitRPS, share, r.said)
	}
}
