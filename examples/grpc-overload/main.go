// Command grpc-overload drives a real gRPC server far beyond its capacity, first bare and then behind Spillway, and
// shows its useful work. Every fourth call is a stream of the server, the others are unary.
//
//	go run ./examples/grpc-overload
//	go run ./examples/grpc-overload -loads 0.5,5 -seconds 10 -guards none,fixed:4,interceptors,spillway -json figures.json
//
// The guard interceptors is spillway without the tap: a call that it refuses has been read and decoded.
package main

import (
	"os"

	"github.com/spillway-go/spillway/lab/overload"
)

func main() {
	os.Exit(overload.Main(overload.Config{
		Transport: transport{},
		Guards:    []overload.Guard{{Name: "spillway"}, {Name: "interceptors"}},
		About: "grpc-overload shows what is left of the useful work of a real gRPC server far beyond its capacity, first bare and then " +
			"behind Spillway. Every fourth call is a stream. The guard interceptors is spillway without the tap.",
		DefaultGuards: "none,spillway",
	}))
}

// transport brings calls to a gRPC server.
type transport struct{}

func (transport) NewServer(guard string, s *overload.Service) (overload.Server, error) {
	return newServer(guard, s)
}

func (transport) NewClient(addr string) (overload.Client, error) { return newClient(addr) }
