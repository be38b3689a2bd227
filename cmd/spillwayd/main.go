package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	_ "time/tzdata" // for quotas, in containers without zones

	"github.com/redis/go-redis/v9"

	"github.com/spillway-go/spillway/cmd/spillwayd/internal/config"
)

//go:embed licenses.txt
var licenses string // go run ./internal/release -notices

func main() {
	redis.SetLogger(quiet{})
	ballast := newBallast()
	code := run(os.Args[1:], os.Stdout, os.Stderr)
	runtime.KeepAlive(ballast)
	os.Exit(code)
}

// newBallast returns memory that is never used, unless the environment tunes the garbage collector. A proxy keeps little and allocates
// much, so its heap would be collected each few hundred requests. With the ballast, the collector waits for so many bytes of garbage more.
func newBallast() []byte {
	const size = 16 << 20
	if os.Getenv("GOGC") != "" {
		return nil
	}
	return make([]byte, size) // the system gives no page of it before it is written to
}

// The exit codes.
const (
	exitOK = iota
	exitFailed
	exitUsage
)

// usage comes before the list of the flags.
const usage = `spillwayd is a reverse proxy that refuses the requests that a service cannot
finish in time. Start it with -to or with -config.

  spillwayd -to http://127.0.0.1:9000                # listens on :8080
  spillwayd -config /etc/spillwayd/spillwayd.yaml    # everything else
  spillwayd -check /etc/spillwayd/spillwayd.yaml     # says what is wrong with a file

The live page is at http://localhost:8081/, and the fields of the file are at
https://pkg.go.dev/github.com/spillway-go/spillway/cmd/spillwayd.

Flags:
`

// run is main with the arguments, without the name of the program. Messages and the log go to out, the licenses to answer.
func run(args []string, answer, out io.Writer) int {
	flags := flag.NewFlagSet("spillwayd", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.Usage = func() {
		fmt.Fprint(out, usage)
		flags.PrintDefaults()
	}
	to := flags.String("to", "", "the backends, with commas between them, such as http://127.0.0.1:9000")
	listen := flags.String("listen", ":8080", "with -to: the address for clients")
	admin := flags.String("admin", "localhost:8081", "with -to: the address for operators, or off")
	dry := flags.Bool("dry-run", false, "with -to: count what would be refused, and refuse nothing")
	file := flags.String("config", "", "the file with everything")
	check := flags.String("check", "", "read a file, say what is wrong with it, and end")
	license := flags.Bool("licenses", false, "print the licenses of the works of others in this program, and end")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return exitOK
		}
		return exitUsage
	}
	if *license {
		if _, err := io.WriteString(answer, licenses); err != nil {
			fmt.Fprintln(out, "spillwayd:", err)
			return exitFailed
		}
		return exitOK
	}
	conf, err := load(*to, *file, *check, flags.NArg())
	if err != nil {
		fmt.Fprintln(out, "spillwayd:", err)
		return exitUsage
	}
	if *check != "" {
		if err := try(conf); err != nil {
			fmt.Fprintln(out, "spillwayd:", err)
			return exitFailed
		}
		fmt.Fprintln(out, "spillwayd:", *check, "is valid")
		return exitOK
	}
	if *to != "" {
		conf.Listen[0].Address, conf.Admin.Address, conf.DryRun = *listen, *admin, *dry
	}
	logger := slog.New(slog.NewJSONHandler(out, nil))
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process
	if err := serve(ctx, conf, *file, logger); err != nil {
		fmt.Fprintln(out, "spillwayd:", err)
		return exitFailed
	}
	return exitOK
}

// A quiet takes the lines that the client of Redis writes. The log says itself when Redis does not answer.
type quiet struct{}

// Printf drops a line.
func (quiet) Printf(context.Context, string, ...any) {}

// load returns what the flags ask for: exactly one of them must be set.
func load(to, file, check string, extra int) (*config.Config, error) {
	set := 0
	for _, f := range []string{to, file, check} {
		if f != "" {
			set++
		}
	}
	switch {
	case extra > 0:
		return nil, fmt.Errorf("there must be no further arguments, got %d", extra)
	case set != 1:
		return nil, errors.New("there must be one of -to, -config and -check; -help lists all flags")
	case to != "":
		return config.Default(strings.Split(to, ",")...)
	}
	return config.Load(file + check)
}
