// Command priorities drives a real server to ten times its capacity with requests of three priorities: with priorities
// off, with priorities on, and with clients that listen to the server.
//
//	go run ./examples/priorities
//	go run ./examples/priorities -seconds 20 -load 20 -json figures.json -report report.html -svg picture.svg
//
// The server is this program started once more. Its bottleneck is a pool of 8 connections, each busy for 40 ms per request.
// Half of the capacity is asked for by critical requests, all of it by normal ones, and the rest is sheddable. The clients
// are an open loop: they send at random times, whatever the answers. Latency counts from the intended time.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"time"

	"github.com/spillway-go/spillway/internal/usage"
)

// figures are the result, as -json writes it. Goodput and the like are shares of the capacity.
type figures struct {
	Goodput     float64        `json:"goodput"`     // useful answers with priorities
	GoodputOff  float64        `json:"goodput_off"` // the same without
	Classes     []classFigures `json:"classes"`     // with priorities
	PlainRPS    float64        `json:"plain_rps"`   // requests per second that reach the server
	HelpedRPS   float64        `json:"helped_rps"`  // the same from clients that listen
	CapacityRPS float64        `json:"capacity_rps"`
	P99OffMS    float64        `json:"p99_off_ms"`  // of the useful answers without priorities
	Helped      helpedFigures  `json:"helped"`      // with clients that listen
	ClassesOff  []classFigures `json:"classes_off"` // without priorities
	Seconds     float64        `json:"seconds"`     // measured, of each
	Load        float64        `json:"load"`        // requests, as a multiple of the capacity
}

type helpedFigures struct {
	Goodput float64        `json:"goodput"`
	Classes []classFigures `json:"classes"`
}

type classFigures struct {
	Priority   string  `json:"priority"`
	OfferedRPS float64 `json:"offered_rps"` // requests per second that clients want to send
	Served     float64 `json:"served"`      // share of them that was answered in time
	P99MS      float64 `json:"p99_ms"`      // latency of the useful answers
}

// settings are the flags of the run.
type settings struct {
	seconds float64
	load    float64
}

const about = `priorities shows what is served first at ten times the capacity: with priorities
off, with priorities on, and with clients that hold back what the server would
refuse. A real server on this machine is loaded for half a minute. Look at
"served": critical requests keep their share only with priorities.`

func main() {
	if serves() {
		if err := serve(); err != nil {
			fmt.Fprintln(os.Stderr, "priorities: server:", err)
			os.Exit(1)
		}
		return
	}
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "priorities:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	var s settings
	flags := usage.New("priorities", about, out)
	flags.Float64Var(&s.seconds, "seconds", 10, "how long to measure each of the three")
	flags.Float64Var(&s.load, "load", 10, "requests, as a multiple of the capacity")
	file := flags.String("json", "", "`FILE` to write the figures to")
	html := flags.String("report", "", "`FILE` to write a page with the figures to")
	svg := flags.String("svg", "", "`FILE` to write a picture of the figures to")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	if !(s.seconds >= 0.5 && s.seconds <= 600) || !(s.load >= 2 && s.load <= 50) {
		return fmt.Errorf("seconds must be in 0.5..600 and load in 2..50, got %v and %v", s.seconds, s.load)
	}
	fmt.Fprintf(out, "This takes about %.0f s: a server gets %g times its capacity, three times.\n\n", 3*(s.seconds+min(s.seconds, 2))+5, s.load)
	f, err := s.play()
	if err != nil {
		return err
	}
	show(out, f)
	if *html != "" {
		if err := page(f).Save(*html); err != nil {
			return err
		}
	}
	if *svg != "" {
		if err := os.WriteFile(*svg, []byte(draw(f)), 0o600); err != nil {
			return err
		}
	}
	if *file == "" {
		return nil
	}
	text, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(*file, append(text, '\n'), 0o600)
}

// play measures the capacity, and then each of the three.
func (s settings) play() (f *figures, err error) {
	capacity, err := measureCapacity(time.Duration(min(s.seconds, 2) * float64(time.Second)))
	if err != nil {
		return nil, err
	}
	rates := [classes]float64{0.5 * capacity, capacity, (s.load - 1.5) * capacity}
	var met [3]*result
	for i, how := range []struct{ priorities, listen bool }{{}, {priorities: true}, {priorities: true, listen: true}} {
		if met[i], err = s.measure(rates, how.priorities, how.listen); err != nil {
			return nil, err
		}
	}
	off, on, helped := met[0], met[1], met[2]
	f = &figures{
		Goodput: round(on.good()/capacity, 3), GoodputOff: round(off.good()/capacity, 3),
		Classes: on.classes(), ClassesOff: off.classes(),
		PlainRPS: round(on.reachedRPS(), 1), HelpedRPS: round(helped.reachedRPS(), 1), CapacityRPS: round(capacity, 1),
		P99OffMS: off.p99(), Helped: helpedFigures{Goodput: round(helped.good()/capacity, 3), Classes: helped.classes()},
		Seconds: s.seconds, Load: s.load,
	}
	return f, nil
}

func round(x float64, digits int) float64 {
	unit := math.Pow10(digits)
	return math.Round(x*unit) / unit
}

func show(out io.Writer, f *figures) {
	fmt.Fprintf(out, "%-9s %10s %19s %19s %19s\n", "", "", "priorities off", "priorities on", "and clients listen")
	fmt.Fprintf(out, "%-9s %10s %10s %8s %10s %8s %10s %8s\n", "priority", "offered/s", "served", "p99", "served", "p99", "served", "p99")
	for i, c := range f.Classes {
		off, helped := f.ClassesOff[i], f.Helped.Classes[i]
		fmt.Fprintf(out, "%-9s %10.0f %8.2f %% %5.0f ms %8.2f %% %5.0f ms %8.2f %% %5.0f ms\n",
			c.Priority, c.OfferedRPS, 100*off.Served, off.P99MS, 100*c.Served, c.P99MS, 100*helped.Served, helped.P99MS)
	}
	fmt.Fprintf(out, "useful answers, of the capacity (%.0f/s): %.3f, %.3f, %.3f\n", f.CapacityRPS, f.GoodputOff, f.Goodput, f.Helped.Goodput)
	fmt.Fprintf(out, "requests that reach the server: %.0f/s, and %.0f/s from clients that listen\n", f.PlainRPS, f.HelpedRPS)
}
