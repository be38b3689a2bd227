package main

import (
	"testing"

	"github.com/spillway-go/spillway/examples/internal/flood"
)

func TestFlood(t *testing.T) {
	flood.Run(t, flood.Site{Start: flood.Handler(newHandler)})
}
