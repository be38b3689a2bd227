package main

import (
	"net"
	"testing"

	"github.com/gofiber/fiber/v3"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/examples/internal/flood"
)

func TestFlood(t *testing.T) {
	flood.Run(t, flood.Site{Start: start, Deaf: true})
}

func start(t *testing.T, api, admin *spillway.Gate) string {
	t.Helper()
	app := newApp(api, admin)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- app.Listener(listener, fiber.ListenConfig{DisableStartupMessage: true}) }()
	t.Cleanup(func() {
		require.NoError(t, app.Shutdown())
		require.NoError(t, <-ended)
	})
	return "http://" + listener.Addr().String()
}
