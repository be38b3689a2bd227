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

func exhausted(t *testing.T, res *http.Response, body []byte) {
	require.Equal(t, http.StatusTooManyRequests, res.StatusCode)
	require.Equal(t, "application/json", res.Header.Get("Content-Type"))
	var problem struct{ Code, Message string }
	require.NoError(t, json.Unmarshal(body, &problem), "%s", body)
	require.Equal(t, "resource_exhausted", problem.Code)
	require.Equal(t, "overloaded", problem.Message)
}
