package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/examples/internal/flood"
)

func TestFlood(t *testing.T) {
	flood.Run(t, flood.Site{Start: flood.Handler(newHandler), Request: post, Refused: exhausted})
}

// post returns a request by Connect's own protocol.
func post(ctx context.Context, t *testing.T, url, group, route string, takes time.Duration) *http.Request {
	body := strings.NewReader(fmt.Sprintf("%q", fmt.Sprint(takes.Seconds(), "s")))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/"+group+"/"+route, body)
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	return req
}

func exhausted(t *testing.T, a flood.Answer) {
	require.Equal(t, http.StatusTooManyRequests, a.Status)
	require.Equal(t, "application/json", a.Header.Get("Content-Type"))
	var problem struct{ Code, Message string }
	require.NoError(t, json.Unmarshal(a.Body, &problem), "%s", a.Body)
	require.Equal(t, "resource_exhausted", problem.Code)
	require.Equal(t, "overloaded", problem.Message)
}
