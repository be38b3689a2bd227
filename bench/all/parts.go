package main

import (
	"fmt"
	"strings"
)

// A part is one section of the page.
type part struct {
	name     string
	files    string // pattern of the figures' names
	commands func(quick bool) []command
	render   func(*settings) (string, error)
}

func parts() []part {
	return []part{
		{"micro", "micro*.txt", microCommands, renderMicro},
		{"overload", "overload*.json", overloadCommands, renderOverload},
		{"virtual", "virtual*.json", virtualCommands, renderVirtual},
		{"scenarios", "scenarios-*.json", scenarioCommands, renderScenarios},
	}
}

func names() (out []string) {
	for _, p := range parts() {
		out = append(out, p.name)
	}
	return out
}

func microCommands(quick bool) []command {
	words := "go run ./bench/micro"
	if quick {
		words += " -passes 1 -benchtime 1ms"
	}
	return []command{{"micro.txt", words, true}}
}

// A run of all works takes half an hour; one for each work leaves figures behind if a later one fails.
func overloadCommands(quick bool) (out []command) {
	for _, work := range []string{"cpu", "cpusolid", "io", "db"} {
		words := fmt.Sprintf("go run ./bench/overload -works %s -guards %s -loads 2,5,10 -seconds 6 -json FILE", work, overloadGuards)
		if quick {
			words = fmt.Sprintf("go run ./bench/overload -works %s -guards spillway,fixed:8 -loads 2 -seconds 1 -settle 0 -bound 10 -json FILE", work)
		}
		out = append(out, command{"overload-" + work + ".json", words, false})
	}
	return out
}

const overloadGuards = "none,spillway,go-zero,aegis,failsafe,gradient2,vegas,rate:1"

func virtualCommands(bool) []command {
	return []command{{"virtual.json", "go test ./bench/virtual -count=1 -run Figures -json-out FILE", false}}
}

// The scenarios of package sim, and the load that those step to.
func scenarioCommands(quick bool) (out []command) {
	all := []string{
		"step 2", "step 5", "step 10", "step-solid 2", "step-solid 5", "step-quota 5", "ramp 3", "bursts 3", "steady 0.9", "bimodal 2", "cpu-io 2",
		"slow-dependency 0.5", "pool 2", "pool 10", "lock 2", "neighbour 0.8", "pauses 0.6", "retry-storm 3", "cold-start 0.95", "idle-step 5",
	}
	if quick {
		all = []string{"idle-step 5", "pauses 0.6"}
	}
	for i, s := range all {
		name, load, _ := strings.Cut(s, " ")
		out = append(out, command{
			fmt.Sprintf("scenarios-%02d-%s-%s.json", i, name, load), // to be read in this order
			fmt.Sprintf("go run ./examples/simulate -scenario %s -load %s -policies spillway,gradient2,vegas,aimd,none -json FILE", name, load), false,
		})
	}
	return out
}
