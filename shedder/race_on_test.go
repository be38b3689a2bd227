//go:build race

package shedder_test

const raceEnabled = true
