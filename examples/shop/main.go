// Command shop is one realistic service behind Spillway, with HTTP and gRPC, a database and limits per tenant. It has
// priorities, a breaker with retries, deadlines, metrics, a live page, readiness, and a shutdown that loses no request.
//
//	go run ./examples/shop                              # serves until Ctrl-C
//	go run ./examples/shop -dsn postgres://localhost/   # with a real PostgreSQL
//	go run ./examples/shop -check -json figures.json    # overloads itself for five seconds, and checks what it promises
//
// Without a database, a pool of eight slow calls stands for it. The pages in docs/howto show the parts one by one.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spillway-go/spillway/internal/usage"
)

const about = `shop shows one service with everything: HTTP and gRPC, a database, tenants,
priorities, a breaker with retries, deadlines, metrics, a live page, readiness
and shutdown. With -check it overloads itself for five seconds, and ends with
status 1 if it breaks a promise.`

// settings are the flags.
type settings struct {
	http, grpc, debug string // addresses
	dsn               string // of PostgreSQL, or "" for a pool of slow calls
	pause             time.Duration
}

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "shop:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	var s settings
	flags := usage.New("shop", about, out)
	flags.StringVar(&s.http, "http", "127.0.0.1:8080", "`address` for HTTP")
	flags.StringVar(&s.grpc, "grpc", "127.0.0.1:8082", "`address` for gRPC")
	flags.StringVar(&s.debug, "debug", "127.0.0.1:8081", "`address` for metrics and the live page")
	flags.StringVar(&s.dsn, "dsn", "", "`URL` of a PostgreSQL database, in which the table shop_items is made")
	flags.DurationVar(&s.pause, "pause", 2*time.Second, "time between becoming unready and the end")
	probe := flags.Bool("check", false, "overload the shop for five seconds, and check what it promises")
	file := flags.String("json", "", "write the figures of -check to `FILE`")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	if *probe {
		return check(s, *file, out)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	shop, err := open(ctx, s)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "serving http://%s/items/7, and gRPC at %s\nlive page: http://%s/debug/spillway/\nCtrl-C ends it\n",
		shop.httpAddr, shop.grpcAddr, shop.debugAddr)
	select {
	case <-ctx.Done():
	case err = <-shop.failed:
	}
	return errors.Join(err, shop.close())
}
