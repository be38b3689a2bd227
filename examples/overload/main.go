// Command overload drives a real HTTP server far beyond its capacity, first bare and then behind Spillway, and shows
// its useful work.
//
//	go run ./examples/overload
//	go run ./examples/overload -loads 0.5,5 -seconds 10 -guards none,fixed:4,spillway -json figures.json
//	go run ./examples/overload -live 127.0.0.1:8081   # shows the live page of the guarded server
package main

import (
	"os"

	"github.com/spillway-go/spillway/lab/overload"
)

func main() {
	os.Exit(overload.Main(overload.Config{
		Guards:        []overload.Guard{{Name: "spillway", Wrap: protected}},
		DefaultGuards: "none,spillway",
	}))
}
