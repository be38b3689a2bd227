// Command spillway-rls is a rate limit service for Envoy. It enforces the limits of descriptor files, which are those of Envoy's
// reference service, for all its processes together on Redis.
//
//	spillway-rls -config shop.yaml -redis 127.0.0.1:6379
//
// It serves RateLimitService and the health checks of gRPC at -listen. At -admin it serves /metrics, /healthz, and /json, which
// answers a RateLimitRequest in JSON. SIGHUP reads the files at once; SIGTERM ends it when the running requests are answered.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/spillway-go/spillway/cluster"
	"github.com/spillway-go/spillway/gateway/envoyrls"
	"github.com/spillway-go/spillway/rules"
)

func main() {
	redis.SetLogger(quiet{})
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stderr, nil)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// A quiet drops the lines that the client of Redis writes: the log says itself when Redis does not answer.
type quiet struct{}

// Printf drops a line.
func (quiet) Printf(context.Context, string, ...any) {}

// settings are the flags.
type settings struct {
	service envoyrls.Options
	files   []string
	redis   string
	listen  string
	admin   string
	drain   time.Duration
	check   bool
}

// maxMessage is the greatest size of a request, in bytes. Those of Envoy have some hundred.
const maxMessage = 256 << 10

const maxHeader = 16 << 10 // bytes of the header of a request

// run serves until ctx ends. It calls ready with the addresses of both listeners when it does.
func run(ctx context.Context, args []string, output io.Writer, ready func(rls, admin string)) error {
	o, err := parse(args, output)
	if err != nil {
		return err
	}
	if o.check {
		return check(o.files, output)
	}
	o.service.Logger = slog.New(slog.NewTextHandler(output, nil))
	client, err := connect(o.redis)
	if err != nil {
		return err
	}
	defer client.Close()
	o.service.Client = client
	warm(ctx, client, o.service.Logger)
	service, err := envoyrls.New(&o.service) //nolint:contextcheck // it ends with Close
	if err != nil {
		return err
	}
	defer service.Close()
	return serve(ctx, o, service, ready)
}

func parse(args []string, output io.Writer) (*settings, error) {
	o := &settings{service: envoyrls.Options{Config: map[string]rules.Source{}}}
	fallback := "divide"
	f := flag.NewFlagSet("spillway-rls", flag.ContinueOnError)
	f.SetOutput(output)
	f.Usage = func() {
		fmt.Fprint(output, "spillway-rls is a rate limit service for Envoy. Its limits hold for all its processes\n"+
			"together, on Redis.\n\n  spillway-rls -config shop.yaml -redis 127.0.0.1:6379\n\nFlags:\n")
		f.PrintDefaults()
	}
	f.Func("config", "a `file` of descriptors; give it once for each domain", func(path string) error {
		o.files = append(o.files, path)
		o.service.Config[path] = rules.File(path)
		return nil
	})
	f.StringVar(&o.redis, "redis", "127.0.0.1:6379", "`address` of Redis, or redis://user:password@host:6379/0; several with commas are a cluster. "+
		"The environment variable REDIS_URL is the default")
	f.StringVar(&o.listen, "listen", ":8081", "`address` for Envoy (gRPC)")
	f.StringVar(&o.admin, "admin", "127.0.0.1:6070", "`address` for metrics, health and requests in JSON (HTTP); empty for none")
	f.IntVar(&o.service.Nodes, "nodes", 1, "number of these processes, which divide the limits while Redis does not answer")
	f.StringVar(&fallback, "fallback", fallback, "decides while Redis does not answer: divide, allow or refuse")
	f.DurationVar(&o.service.Timeout, "timeout", 10*time.Millisecond, "longest time of a call of Redis; less than the timeout of Envoy's filter")
	f.Func("lease-from", "`rate` such as 1000/s from which on rules are decided without Redis; none by default", func(text string) error {
		return o.service.LeaseFrom.UnmarshalText([]byte(text))
	})
	f.BoolVar(&o.service.DryRun, "dry-run", false, "count refusals, and refuse nothing")
	f.BoolVar(&o.service.NoHeaders, "no-headers", false, "leave the RateLimit header fields out of the answers")
	f.StringVar(&o.service.Prefix, "prefix", "spillway", "begins the name of every key in Redis")
	f.DurationVar(&o.drain, "drain", 5*time.Second, "longest time to answer running requests at the end")
	f.BoolVar(&o.check, "check", false, "check the files and exit")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if url := os.Getenv("REDIS_URL"); url != "" && !given(f, "redis") {
		o.redis = url
	}
	choices := map[string]cluster.Fallback{"divide": cluster.Divide, "allow": cluster.AllowAll, "refuse": cluster.RefuseAll}
	var known bool
	if o.service.Fallback, known = choices[fallback]; fallback == "divide" {
		o.service.Fallback = 0 // leases are kept for a while first
	}
	switch {
	case f.NArg() > 0:
		return nil, fmt.Errorf("spillway-rls: arguments: must be none, got %q", f.Args())
	case len(o.files) == 0:
		return nil, errors.New("spillway-rls: -config: must be set, got none")
	case !known:
		return nil, fmt.Errorf("spillway-rls: -fallback: must be divide, allow or refuse, got %q", fallback)
	}
	return o, nil
}

func given(f *flag.FlagSet, name string) bool {
	found := false
	f.Visit(func(g *flag.Flag) { found = found || g.Name == name })
	return found
}

// check checks the files.
func check(files []string, output io.Writer) error {
	found := map[string][]byte{}
	for _, path := range files {
		data, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("spillway-rls: -config: %w", err)
		}
		found[path] = data
	}
	if err := envoyrls.Check(found); err != nil {
		return err
	}
	fmt.Fprintf(output, "ok: %s\n", strings.Join(files, ", "))
	return nil
}

// idle is the number of connections that are open before requests need them: opening many at once takes longer than -timeout.
const idle = 16

// connect returns a client of Redis, without asking it. The errors do not show the password.
func connect(address string) (redis.UniversalClient, error) {
	if !strings.Contains(address, "://") {
		return redis.NewUniversalClient(&redis.UniversalOptions{
			Addrs: strings.Split(address, ","), ContextTimeoutEnabled: true, MaxRetries: -1, DialerRetries: 1, MinIdleConns: idle,
		}), nil
	}
	o, err := redis.ParseURL(address)
	if err != nil {
		return nil, errors.New("spillway-rls: -redis: must be an address or a URL such as redis://user:password@host:6379/0")
	}
	o.ContextTimeoutEnabled, o.MaxRetries, o.DialerRetries, o.MinIdleConns = true, -1, 1, idle
	return redis.NewClient(o), nil
}

// warm opens a connection, so that the first request does not wait for one. Without Redis, the fallback decides.
func warm(ctx context.Context, client redis.UniversalClient, logger *slog.Logger) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if err := client.Ping(ctx).Err(); err != nil {
		logger.Warn("spillway-rls: Redis does not answer, the fallback decides", slog.Any("error", err))
	}
}

func serve(ctx context.Context, o *settings, service *envoyrls.Service, ready func(rls, admin string)) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.listen)
	if err != nil {
		return fmt.Errorf("spillway-rls: -listen: %w", err)
	}
	server := grpc.NewServer(grpc.MaxRecvMsgSize(maxMessage), grpc.MaxConcurrentStreams(1000), grpc.MaxHeaderListSize(maxHeader))
	healthy := health.NewServer()
	healthv1.RegisterHealthServer(server, healthy)
	healthy.SetServingStatus(ratelimitv3.RateLimitService_ServiceDesc.ServiceName, healthv1.HealthCheckResponse_SERVING)
	ratelimitv3.RegisterRateLimitServiceServer(server, service)
	failed := make(chan error, 2)
	go func() { failed <- server.Serve(listener) }()
	defer server.Stop()

	var adminAddress string
	if o.admin != "" {
		side, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.admin)
		if err != nil {
			return fmt.Errorf("spillway-rls: -admin: %w", err)
		}
		adminAddress = side.Addr().String()
		web := &http.Server{
			Handler: adminOf(service), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 20 * time.Second,
			MaxHeaderBytes: maxHeader,
		}
		go func() { failed <- web.Serve(side) }()
		defer web.Close()
	}
	reload := make(chan os.Signal, 1)
	signal.Notify(reload, syscall.SIGHUP)
	defer signal.Stop(reload)
	o.service.Logger.Info("spillway-rls: serving", slog.String("listen", listener.Addr().String()), slog.String("admin", adminAddress))
	if ready != nil {
		ready(listener.Addr().String(), adminAddress)
	}
	for {
		select {
		case <-reload:
			_ = service.Reload(ctx) // its error is in the log
		case err := <-failed:
			return fmt.Errorf("spillway-rls: %w", err)
		case <-ctx.Done():
			healthy.Shutdown()
			drain(server, o.drain)
			return nil
		}
	}
}

// drain ends a server: when the running requests are answered, or after the time.
func drain(server *grpc.Server, most time.Duration) {
	timer := time.AfterFunc(most, server.Stop)
	defer timer.Stop()
	server.GracefulStop()
}
