//go:build unix

package main

import (
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/cmd/spillwayd/internal/config"
	"github.com/spillway-go/spillway/limiter"
)

// A client that goes on sending requests which its own limits refuse is shut out. A trusted proxy is not, since its connections have
// the requests of many clients, and nobody is in a dry run.
func TestClientsThatFloodAreShutOut(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*config.Config)
		shutOut bool
	}{
		"a stranger": {func(*config.Config) {}, true},
		"a trusted proxy": {func(c *config.Config) {
			c.Trusted = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
		}, false},
		"a dry run": {func(c *config.Config) { c.DryRun = true }, false},
		"a rate of all clients, which another may have used up": {func(c *config.Config) { c.Routes[0].Rate.Per = config.PerAll }, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := start(t, echo, func(conf *config.Config) {
				conf.Client.Key, conf.Listen[0].MaxUseless = "ip", 5
				conf.Routes = []config.Route{{Match: "/", Name: "all", Rate: &config.Rate{Rate: limiter.Per(1, time.Hour), Burst: 3, Per: config.PerClient}}}
				c.change(conf)
			})
			var answers, failed int
			for range 40 { // many times as many as a second may have, if the machine is slow
				res, err := send(t.Context(), p, "")
				if err != nil {
					failed++
					continue
				}
				require.Contains(t, []int{http.StatusOK, http.StatusTooManyRequests}, res)
				answers++
			}
			if !c.shutOut {
				require.Equal(t, 40, answers)
				return
			}
			require.GreaterOrEqual(t, answers, 3+5)
			require.Positive(t, failed)
			_, metrics := p.get(p.admin + "/metrics")
			require.NotContains(t, metrics, `spillwayd_connections_total{name="127.0.0.1:0",result="flooding"} 0`)
			require.Contains(t, metrics, `result="flooding"`)
		})
	}
}
