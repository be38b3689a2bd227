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
		{"shapes", "shapes*.json", shapesCommands, renderShapes},
		{"virtual", "virtual*.json", virtualCommands, renderVirtual},
		{"scenarios", "scenarios-*.json", scenarioCommands, renderScenarios},
		{"cluster", "cluster*.txt", clusterCommands, renderCluster},
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

// clusterCommands need a redis-server on the machine.
func clusterCommands(quick bool) []command {
	words := "go run ./bench/cluster"
	if quick {
		words += " -only cost,hot -passes 1 -calls 100 -slice 10ms"
	}
	return []command{{"cluster.txt", words, true}}
}

var works = []string{"cpu", "cpusolid", "io", "db"}

// The guards that are compared. The bare server is measured by itself: it has to be replaced after every load.
const compared = "spillway,go-zero,aegis,failsafe,gradient2,vegas,rate:1"

// overloadCommands has a command for each work and load, so that a failure costs only a minute. One more command
// measures refusals below the capacity.
func overloadCommands(quick bool) (out []command) {
	const program, length = "go run ./bench/overload", "-seconds 5 -settle 1 -json FILE"
	if quick {
		words := program + " -guards spillway,fixed:8 -works cpu -loads 2 -seconds 1 -settle 0 -bound 10 -json FILE"
		return []command{{"overload-cpu.json", words, false}}
	}
	for _, work := range works {
		for _, load := range []string{"2", "5", "10"} {
			words := fmt.Sprintf("%s -guards %s -works %s -loads %s %s", program, compared, work, load, length)
			out = append(out, command{fmt.Sprintf("overload-%s-%s.json", work, load), words, false})
		}
		words := fmt.Sprintf("%s -guards none,%s -works %s -loads 0.9 -sweep none %s", program, compared, work, length)
		out = append(out, command{fmt.Sprintf("overload-%s-below.json", work), words, false})
		words = fmt.Sprintf("%s -guards none -works %s -loads 2,5,10 -sweep none %s", program, work, length)
		out = append(out, command{fmt.Sprintf("overload-%s-none.json", work), words, false})
	}
	words := fmt.Sprintf("%s -guards %s -works mixed -loads 5 %s", program, compared, length)
	return append(out, command{"overload-mixed-5.json", words, false})
}

// shapesCommands run one load for each shape but the step. A storm has three loads: before it, during it and after it.
func shapesCommands(quick bool) []command {
	const program = "go run ./bench/overload -works cpu"
	if quick {
		return []command{{"shapes-1.json", program + " -shape burst -guards spillway -loads 2 -sweep none -seconds 1 -settle 0 -bound 10 -json FILE", false}}
	}
	const guards, storm = "none,spillway,go-zero,aegis,failsafe,gradient2,vegas", "none,spillway,aegis,failsafe,gradient2"
	return []command{
		{"shapes-1-ramp.json", program + " -shape ramp -guards " + guards + " -loads 5 -sweep 16 -seconds 6 -settle 1 -json FILE", false},
		{"shapes-2-burst.json", program + " -shape burst -guards " + guards + " -loads 5 -sweep 16 -seconds 6 -settle 1 -json FILE", false},
		{"shapes-3-storm.json", program + " -shape storm -guards " + storm + " -loads 0.8,3,0.8 -sweep 16 -seconds 3 -settle 1 -json FILE", false},
	}
}

func virtualCommands(quick bool) []command {
	words := "go test ./bench/virtual -count=1 -run Figures -json-out FILE"
	if quick {
		words += " -brief"
	}
	return []command{{"virtual.json", words, false}}
}

// The scenarios of package sim, and the loads of their steps.
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
