package main

import (
	"net/http"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/lab/overload"
	"github.com/spillway-go/spillway/middleware/httpgate"
	"github.com/spillway-go/spillway/shedder"
)

// protected is Spillway with default options, as a service would use it.
func protected(next http.Handler) (http.Handler, overload.StatsFunc, error) {
	shed, err := shedder.New(nil)
	if err != nil {
		return nil, nil, err
	}
	gate := spillway.New(shed)
	return httpgate.Handler(gate, nil)(next), func() overload.View { return overload.Shedding(gate, shed) }, nil
}
