// Command breaker shows the effect of a breaker on a client of two servers when one of them breaks.
//
//	go run ./examples/breaker
//	go run ./examples/breaker -rate 200 -scale 0.5 -json figures.json
//
// Two real servers listen on the loopback. A client with few workers sends every second request to each. On command the
// first server answers errors, then hangs, then recovers. Two such runs take place at the same time, each on its own
// servers. One has a breaker per server, which lets the client use the other server at once. The other has none.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/spillway-go/spillway/internal/usage"
)

// phases are the behaviours of the first server, one after the other, and their durations.
var phases = []struct {
	name string
	does behaviour
	took time.Duration
}{
	{"well", well, 2 * time.Second},
	{"errors", failing, 2 * time.Second},
	{"hangs", hanging, 8 * time.Second},
	{"well again", well, 4 * time.Second},
}

// figures are the result, as -json writes it.
type figures struct {
	Useful        pair    `json:"useful"`          // share of requests answered successfully and in time
	CallsToBroken counts  `json:"calls_to_broken"` // calls that reached the server while it was broken
	RecoveredS    float64 `json:"recovered_s"`     // from the end of the trouble until the breaker was closed
}

type pair struct {
	With    float64 `json:"with"`
	Without float64 `json:"without"`
}

type counts struct {
	With    int64 `json:"with"`
	Without int64 `json:"without"`
}

const about = `breaker shows what a breaker is worth to a client of two servers when one of
them breaks. The first server answers errors, then hangs, then recovers. Two
clients run side by side for 16 s, one with breakers and one without. Look at
the share of requests that each gets answered.`

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "breaker:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	flags := usage.New("breaker", about, out)
	rate := flags.Int("rate", 400, "requests per second")
	scale := flags.Float64("scale", 1, "length of the run, as a multiple of 16 s")
	file := flags.String("json", "", "`FILE` to write the figures to")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	if *rate < 1 || *rate > 10_000 || !(*scale >= 0.1 && *scale <= 10) {
		return fmt.Errorf("rate must be in 1..10000 and scale in 0.1..10, got %d and %v", *rate, *scale)
	}

	fmt.Fprintf(out, "This takes %.0f s: a server works, answers errors, hangs, and works again.\n\n", 16**scale)
	with, without := &side{breakers: true}, &side{}
	var wg sync.WaitGroup
	for _, s := range []*side{with, without} {
		wg.Go(func() { s.err = s.run(*rate, *scale) })
	}
	wg.Wait()
	for _, s := range []*side{with, without} {
		if s.err != nil {
			return s.err
		}
	}
	f := figures{
		Useful:        pair{with.useful(), without.useful()},
		CallsToBroken: counts{with.servers[0].broken.Load(), without.servers[0].broken.Load()},
		RecoveredS:    with.recovered().Seconds(),
	}
	show(out, f, with, without)
	if *file == "" {
		return nil
	}
	text, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(*file, append(text, '\n'), 0o600)
}

func show(out io.Writer, f figures, with, without *side) {
	fmt.Fprintf(out, "%-12s %14s %14s\n", "", "with breakers", "without")
	for i, p := range phases {
		fmt.Fprintf(out, "%-12s %13.1f%% %13.1f%%\n", p.name, 100*with.usefulIn(i), 100*without.usefulIn(i))
	}
	fmt.Fprintf(out, "%-12s %13.1f%% %13.1f%%   answered well and in time\n", "in all", 100*f.Useful.With, 100*f.Useful.Without)
	fmt.Fprintf(out, "%-12s %14d %14d   reached the broken server\n", "calls", f.CallsToBroken.With, f.CallsToBroken.Without)
	fmt.Fprintf(out, "%-12s %13.1fs                  until all calls were let through\n", "recovery", f.RecoveredS)
}
