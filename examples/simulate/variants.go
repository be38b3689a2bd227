package main

import "github.com/spillway-go/spillway/shedder"

// A variant is a shedder with one mechanism switched off, or one constant changed.
type variant struct {
	name string
	new  func(*shedder.Options) (*shedder.Shedder, error)
}

// variants returns what -ablate compares, the default first.
func variants() []variant {
	return []variant{{"default", shedder.New}}
}
