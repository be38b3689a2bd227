package main

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/cmd/spillwayd/internal/config"
	"github.com/spillway-go/spillway/limiter"
)

// Requests over a rate wait, but only so many, and a client that leaves makes room for another.
func TestWaitingRequestsAreBounded(t *testing.T) {
	for _, per := range []string{config.PerAll, config.PerClient} {
		for _, http2 := range []bool{false, true} {
			p := start(t, echo, func(c *config.Config) {
				c.Client.Key = "ip"
				c.Routes = []config.Route{{Match: "/", Name: "all", Rate: &config.Rate{
					Rate: limiter.Per(1, 10*time.Second), MaxWait: time.Minute, MaxQueue: 3, Per: per,
				}}}
			})
			client := &http.Client{Transport: speaking(http2)}
			get := func(ctx context.Context) (int, error) {
				r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url, nil)
				if err != nil {
					return 0, err
				}
				res, err := client.Do(r)
				if err != nil {
					return 0, err
				}
				return res.StatusCode, res.Body.Close()
			}
			const sent = 7
			ctx, leave := context.WithCancel(t.Context())
			answers := make(chan int, sent)
			for range sent {
				go func() {
					status, err := get(ctx)
					if err != nil {
						status = 0
					}
					answers <- status
				}()
			}
			seen := map[int]int{}
			for range sent - 3 {
				seen[<-answers]++
			}
			require.Equal(t, map[int]int{http.StatusOK: 1, http.StatusTooManyRequests: 3}, seen, "the others wait")
			leave()
			for range 3 {
				require.Zero(t, <-answers)
			}
			require.Eventually(t, func() bool { // the server has to notice
				once, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				_, err := get(once)
				return errors.Is(err, context.DeadlineExceeded) // it waits, and is not refused
			}, patience, 10*time.Millisecond)
			require.Equal(t, int64(1), p.backendHits.Load())
			client.CloseIdleConnections()
		}
	}
}
