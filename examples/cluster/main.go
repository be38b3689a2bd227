// Command cluster shares one limit between three servers by leases from Redis, and kills a server and Redis.
//
//	go run ./examples/cluster
//	go run ./examples/cluster -seconds 10 -rate 2000 -json figures.json -report cluster.html
//	go run ./examples/cluster -redis 127.0.0.1:6379
//
// Three real servers, each in its own process, get a load in the ratio 5 : 3.5 : 1. The load is more than twice the rate that
// they may let through together. The program kills the busiest server, then Redis, and restarts both. It prints how much each
// server lets through, and draws it with -report. With -redis it uses your own Redis and does not kill it.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-go/spillway/internal/usage"
)

// demands are the loads of the servers, as parts of the limit.
var demands = []float64{1.25, 0.875, 0.25}

// settings are the values of the flags.
type settings struct {
	rate    int
	phase   time.Duration
	redis   string
	json    string
	page    string
	version string
}

const about = `cluster shows one limit that three servers share by leases from Redis. The
busiest server is killed, then Redis, and both come back. It needs the program
redis-server, or a Redis of yours, and takes half a minute. Look at the sum of
the requests that the servers let through: it stays near the limit.`

func main() {
	if run, ok := child(); ok {
		exit(run())
	}
	exit(run(os.Args[1:], os.Stdout))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func run(args []string, out io.Writer) error {
	s, err := parse(args, out)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	redis.SetLogger(quiet{}) // errors report a Redis that does not answer
	show, err := s.drama(out)
	if err != nil {
		return err
	}
	figures := show.figures()
	figures.print(out)
	if s.json != "" {
		text, err := json.MarshalIndent(figures, "", "  ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(s.json, append(text, '\n'), 0o600); err != nil {
			return err
		}
	}
	if s.page == "" {
		return nil
	}
	return show.page(figures).Save(s.page)
}

func parse(args []string, out io.Writer) (settings, error) {
	var s settings
	flags := usage.New("cluster", about, out)
	seconds := flags.Float64("seconds", 6, "length of each phase, 2..600; the last may take 4 to look restored")
	flags.IntVar(&s.rate, "rate", 1000, "requests per second that all servers together let through, 100..20000")
	flags.StringVar(&s.redis, "redis", "", "`ADDRESS` of a Redis to use instead of one of its own; it is cut off instead of killed")
	flags.StringVar(&s.json, "json", "", "`FILE` to write the figures to")
	flags.StringVar(&s.page, "report", "", "`FILE` to write a page with charts to")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	if s.rate < 100 || s.rate > 20_000 || !(*seconds >= 2 && *seconds <= 600) {
		return s, fmt.Errorf("-rate must be in 100..20000 and -seconds in 2..600, got %d and %v", s.rate, *seconds)
	}
	if flags.NArg() > 0 {
		return s, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	for _, name := range []string{s.json, s.page} {
		if _, err := os.Stat(filepath.Dir(name)); err != nil { // check it now, not at the end of the run
			return s, err
		}
	}
	s.phase = time.Duration(*seconds * float64(time.Second))
	return s, nil
}
