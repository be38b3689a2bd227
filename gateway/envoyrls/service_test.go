package envoyrls_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/spillway-go/spillway/cluster"
	"github.com/spillway-go/spillway/gateway/envoyrls"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/rules"
)

const (
	ok   = ratelimitv3.RateLimitResponse_OK
	over = ratelimitv3.RateLimitResponse_OVER_LIMIT
)

// text is a source whose text may change.
type text struct{ atomic.Value }

func (x *text) read(context.Context) ([]byte, error) {
	if f := x.Load().(string); f != gone {
		return []byte(f), nil
	}
	return nil, errors.New("file is gone")
}

const gone = "gone"

func of(files ...string) map[string]rules.Source {
	sources := map[string]rules.Source{}
	for i, f := range files {
		sources[fmt.Sprintf("file%d.yaml", i)] = func(context.Context) ([]byte, error) { return []byte(f), nil }
	}
	return sources
}

// start starts a Service with a gRPC server, and returns a client of it. No test waits for the window of a rule: they use weeks
// and years, which begin with the first request.
func start(t testing.TB, o envoyrls.Options) (ratelimitv3.RateLimitServiceClient, *envoyrls.Service) {
	t.Helper()
	if o.Nodes == 0 && o.Fallback == 0 {
		o.Nodes = 1
	}
	if o.Timeout == 0 {
		o.Timeout = 5 * time.Second // a busy machine; Envoy would not wait so long
	}
	s, err := envoyrls.New(&o)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := grpc.NewServer()
	ratelimitv3.RegisterRateLimitServiceServer(server, s)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return ratelimitv3.NewRateLimitServiceClient(conn), s
}

// descriptor makes a descriptor of entries such as "key=value" and "key".
func descriptor(entries string) *commonv3.RateLimitDescriptor {
	d := &commonv3.RateLimitDescriptor{}
	for e := range strings.FieldsSeq(entries) {
		key, value, _ := strings.Cut(e, "=")
		d.Entries = append(d.Entries, &commonv3.RateLimitDescriptor_Entry{Key: key, Value: value})
	}
	return d
}

func request(descriptors ...string) *ratelimitv3.RateLimitRequest {
	r := &ratelimitv3.RateLimitRequest{Domain: "shop"}
	for _, d := range descriptors {
		r.Descriptors = append(r.Descriptors, descriptor(d))
	}
	return r
}

// codesOf asks, and returns the codes: overall, then of each descriptor.
func codesOf(t testing.TB, c ratelimitv3.RateLimitServiceClient, r *ratelimitv3.RateLimitRequest) string {
	t.Helper()
	res, err := c.ShouldRateLimit(t.Context(), r)
	require.NoError(t, err)
	names := []string{res.GetOverallCode().String()}
	require.Len(t, res.GetStatuses(), len(r.GetDescriptors()))
	for _, st := range res.GetStatuses() {
		names = append(names, st.GetCode().String())
	}
	return strings.ReplaceAll(strings.Join(names, " "), "OVER_LIMIT", "OVER")
}

const shop = `
domain: shop
descriptors:
  - key: address
    rate_limit: {unit: week, requests_per_unit: 2}
  - key: address
    value: office
    rate_limit: {unlimited: true}
  - key: address
    value: friend # no limit
  - key: address
    value: banned
    rate_limit: {unit: year, requests_per_unit: 0}
  - key: path
    value: /api/*
    rate_limit: {unit: week, requests_per_unit: 1}
  - key: path
    value: /shared/*
    share_threshold: true
    rate_limit: {unit: week, requests_per_unit: 1}
  - key: path
    value: /api/free
    rate_limit: {unit: YEAR, requests_per_unit: 1000}
  - key: tried
    shadow_mode: true
    rate_limit: {unit: week, requests_per_unit: 1}
  - key: tenant
    rate_limit: {unit: week, requests_per_unit: 4, name: tenants}
    descriptors:
      - key: method
        value: POST
        rate_limit: {unit: week, requests_per_unit: 1}
      - key: method
        rate_limit: {unit: week, requests_per_unit: 3}
  - key: status
    value: 404
    rate_limit: {unit: week, requests_per_unit: 1}
  - key: vip
    rate_limit: {unit: week, requests_per_unit: 9, name: vips, replaces: [{name: tenants}]}
`

func TestDescriptors(t *testing.T) {
	c, s := start(t, envoyrls.Options{Client: startRedis(t).client(t), Config: of(shop)})
	for i, step := range []struct{ ask, want string }{
		{"address=a", "OK OK"},
		{"address=a", "OK OK"},
		{"address=a", "OVER OVER"},
		{"address=b", "OK OK"}, // each value has its own limit
		{"address", "OK OK"},   // and no value is a value
		{"address=office", "OK OK"},
		{"address=friend", "OK OK"},
		{"address=banned", "OVER OVER"},
		{"path=/api/x", "OK OK"},
		{"path=/api/x", "OVER OVER"},
		{"path=/api/y", "OK OK"},
		{"path=/api/free", "OK OK"}, // an equal value goes first
		{"path=/api/free", "OK OK"},
		{"path=/shared/x", "OK OK"},
		{"path=/shared/y", "OVER OVER"},
		{"path=/other", "OK OK"},
		{"tried=x", "OK OK"},
		{"tried=x", "OK OK"}, // over, in shadow
		{"tenant=1 method=POST", "OK OK"},
		{"tenant=1 method=POST", "OVER OVER"},
		{"tenant=1 method=GET", "OK OK"},
		{"tenant=1 method=GET path=/", "OK OK"}, // deeper than the file
		{"tenant=2 method=POST", "OK OK"},
		{"status=404", "OK OK"},
		{"status=404", "OVER OVER"},
		{"unknown=1", "OK OK"},
		{"tenant=3, address=c", "OK OK OK"},
		{"tenant=3, address=c", "OK OK OK"},
		{"tenant=3, address=c", "OVER OK OVER"},
		{"tenant=3", "OK OK"}, // the refused request took none of its tokens
		{"tenant=3", "OK OK"},
		{"tenant=3", "OVER OVER"},
		{"tenant=3, vip=3", "OK OK OK"}, // which replaces the limit of the tenant
		{"address=d, address=d", "OK OK OK"},
		{"address=d, unknown", "OVER OVER OK"},
		{"address=e, address=e, address=e", "OVER OVER OVER OVER"}, // three of two
		{"address=e, address=e", "OK OK OK"},
		{"address=office, address=d, unknown", "OVER OK OVER OK"},
	} {
		require.Equal(t, step.want, codesOf(t, c, request(strings.Split(step.ask, ", ")...)), "step %d: %s", i, step.ask)
	}
	other := request("address=a")
	other.Domain = "other"
	require.Equal(t, "OK OK", codesOf(t, c, other), "an unknown domain has no limits")

	counted := map[string]envoyrls.RuleStats{}
	st := s.Stats()
	for _, r := range st.Rules {
		counted[r.Rule] = r
	}
	require.Equal(t, envoyrls.RuleStats{Domain: "shop", Rule: "tried", Admitted: 1, Shadowed: 1}, counted["tried"])
	require.Equal(t, envoyrls.RuleStats{Domain: "shop", Rule: `path=/api/*`, Admitted: 2, Refused: 1}, counted[`path=/api/*`])
	require.EqualValues(t, 1, counted["tenant|method=POST"].Refused)
	require.EqualValues(t, 2, counted["address=office"].Admitted)
	require.Len(t, st.Rules, 12)
	require.NoError(t, st.Err)
	require.Zero(t, st.Unanswered)
	var names int
	for m := range s.Metrics() {
		names++
		require.NotContains(t, fmt.Sprint(m.Labels), "address=d", "no label comes from a request")
	}
	require.Equal(t, 8+3*12, names)
}

func TestAnswerHasFiguresAndHeaders(t *testing.T) {
	c, _ := start(t, envoyrls.Options{Client: startRedis(t).client(t), Config: of(shop)})
	r := request("address=a", "tenant=1", "unknown", "address=office", "tried=x")
	res, err := c.ShouldRateLimit(t.Context(), r)
	require.NoError(t, err)
	st := res.GetStatuses()
	require.EqualValues(t, 1, st[0].GetLimitRemaining())
	require.EqualValues(t, 2, st[0].GetCurrentLimit().GetRequestsPerUnit())
	require.Equal(t, ratelimitv3.RateLimitResponse_RateLimit_WEEK, st[0].GetCurrentLimit().GetUnit())
	require.InDelta(t, (7 * 24 * time.Hour).Seconds(), st[0].GetDurationUntilReset().AsDuration().Seconds(), 60)
	require.Equal(t, "tenants", st[1].GetCurrentLimit().GetName())
	require.Nil(t, st[2].GetCurrentLimit())
	require.Equal(t, uint32(math.MaxUint32), st[3].GetLimitRemaining())
	require.Zero(t, st[4].GetLimitRemaining())
	require.Equal(t, map[string]string{
		"ratelimit-policy": `"address";q=2;w=604800, "tenants";q=4;w=604800`,
		"ratelimit":        `"address";r=1;t=604800, "tenants";r=3;t=604800`,
	}, headersOf(res))

	_, err = c.ShouldRateLimit(t.Context(), request("address=a"))
	require.NoError(t, err)
	res, err = c.ShouldRateLimit(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, over, res.GetOverallCode())
	h := headersOf(res)
	require.Contains(t, h["ratelimit"], `"address";r=0;t=`)
	require.Contains(t, h["ratelimit"], `"tenants";r=3;t=`, "a refused request takes nothing")
	require.Regexp(t, `^60\d{4}$`, h["retry-after"])
	require.EqualValues(t, 3, res.GetStatuses()[1].GetLimitRemaining())

	res, err = c.ShouldRateLimit(t.Context(), request("address=x", "address=y"))
	require.NoError(t, err)
	require.Contains(t, headersOf(res)["ratelimit"], `"address";r=1;t=604800, "address 2";r=1;t=604800`)
}

func headersOf(res *ratelimitv3.RateLimitResponse) map[string]string {
	h := map[string]string{}
	for _, v := range res.GetResponseHeadersToAdd() {
		h[v.GetKey()] = v.GetValue()
	}
	return h
}

func TestHitsAddend(t *testing.T) {
	c, _ := start(t, envoyrls.Options{Client: startRedis(t).client(t), Config: of(`
domain: shop
descriptors:
  - key: k
    rate_limit: {unit: week, requests_per_unit: 10}
  - key: shadow
    shadow_mode: true
    rate_limit: {unit: week, requests_per_unit: 10}
`), NoHeaders: true})
	own := wrapperspb.UInt64
	for i, step := range []struct {
		entries string
		hits    uint32
		own     *wrapperspb.UInt64Value
		want    string
		left    int
	}{
		{"k=a", 0, nil, "OK OK", 9}, // 0 of a request means 1
		{"k=a", 1, nil, "OK OK", 8},
		{"k=a", 5, own(0), "OK OK", 8}, // 0 of a descriptor asks
		{"k=a", 0, own(3), "OK OK", 5},
		{"k=a", 6, nil, "OVER OVER", 5}, // all or nothing
		{"k=a", 11, nil, "OVER OVER", 5},
		{"k=a", math.MaxUint32, nil, "OVER OVER", 5},
		{"k=a", 0, own(math.MaxUint64), "OVER OVER", 5},
		{"k=a", 5, nil, "OK OK", 0},
		{"k=a", 0, own(0), "OVER OVER", 0},
		{"k=b", 0, own(0), "OK OK", 10},
		{"k=b", 10, nil, "OK OK", 0},
		{"shadow=a", 11, nil, "OK OK", 10}, // can never pass, and took nothing
		{"shadow=a", 10, nil, "OK OK", 0},
		{"shadow=a", 0, own(0), "OK OK", 0},
		{"shadow=a", 0, nil, "OK OK", 0},
	} {
		r := request(step.entries)
		r.HitsAddend, r.Descriptors[0].HitsAddend = step.hits, step.own
		require.Equal(t, step.want, codesOf(t, c, r), "step %d", i)
		r.Descriptors[0].HitsAddend = own(0)
		res, err := c.ShouldRateLimit(t.Context(), r)
		require.NoError(t, err)
		require.EqualValues(t, step.left, res.GetStatuses()[0].GetLimitRemaining(), "step %d", i)
		require.Empty(t, res.GetResponseHeadersToAdd())
	}
	r := request("k=c", "k=c") // the sum of both overflows
	r.Descriptors[0].HitsAddend, r.Descriptors[1].HitsAddend = own(math.MaxUint64), own(5)
	require.Equal(t, "OVER OVER OVER", codesOf(t, c, r))
	r = request("k=d", "k=c") // an asking descriptor refuses for both
	r.Descriptors[1].HitsAddend = own(0)
	require.Equal(t, "OK OK OK", codesOf(t, c, r))
	all := request("k=c")
	all.HitsAddend = 10
	require.Equal(t, "OK OK", codesOf(t, c, all))
	require.Equal(t, "OVER OK OVER", codesOf(t, c, r))
	require.Equal(t, "OVER OK OVER OVER", codesOf(t, c, &ratelimitv3.RateLimitRequest{
		Domain: "shop", Descriptors: append(r.GetDescriptors(), descriptor("k=c")),
	}))
}

func TestLimitSentByEnvoy(t *testing.T) {
	c, s := start(t, envoyrls.Options{Client: startRedis(t).client(t), Config: of(shop)})
	with := func(entries string, n uint32, unit typev3.RateLimitUnit) *ratelimitv3.RateLimitRequest {
		r := request(entries)
		r.Descriptors[0].Limit = &commonv3.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: n, Unit: unit}
		return r
	}
	const year = typev3.RateLimitUnit_YEAR
	require.Equal(t, "OK OK", codesOf(t, c, with("any=1 thing=2", 1, year)))
	require.Equal(t, "OVER OVER", codesOf(t, c, with("any=1 thing=2", 1, year)))
	require.Equal(t, "OK OK", codesOf(t, c, with("any=1 thing=2", 2, year)), "another limit counts apart")
	require.Equal(t, "OVER OVER", codesOf(t, c, with("any=1", 0, year)))
	require.Equal(t, "OK OK", codesOf(t, c, with("address=banned", 1, year)), "it goes before the file")
	both := with("any=2", 1, year)
	both.Descriptors = append(both.Descriptors, with("any=2", 2, year).GetDescriptors()...)
	require.Equal(t, "OK OK OK", codesOf(t, c, both))
	require.Equal(t, "OVER OVER OK", codesOf(t, c, both))
	_, err := c.ShouldRateLimit(t.Context(), with("any=1", 1, typev3.RateLimitUnit_UNKNOWN))
	require.Equal(t, codes.InvalidArgument, status.Code(err))
	require.ErrorContains(t, err, "descriptors[0].limit.unit: must be one of SECOND to YEAR, got UNKNOWN")
	for n := range uint32(600) { // more than are kept
		require.Equal(t, "OK OK", codesOf(t, c, with("many=1", n+1, year)))
	}
	require.Equal(t, "OVER OVER", codesOf(t, c, with("many=1", 1, year)), "Redis remembers them")
	st := s.Stats()
	require.Equal(t, "=sent by Envoy", st.Rules[len(st.Rules)-1].Rule)
	require.EqualValues(t, 606, st.Rules[len(st.Rules)-1].Admitted)
}

func TestRequestsThatAreRefusedAsInvalid(t *testing.T) {
	c, _ := start(t, envoyrls.Options{Client: startRedis(t).client(t), Config: of(shop)})
	for want, r := range map[string]*ratelimitv3.RateLimitRequest{
		`domain: must be set, got ""`:          {Descriptors: request("a").GetDescriptors()},
		"descriptors: must be 1..64, got 0":    {Domain: "shop"},
		"descriptors: must be 1..64, got 65":   {Domain: "shop", Descriptors: make([]*commonv3.RateLimitDescriptor, 65)},
		"descriptors: must be 1..64, got 5000": request(make([]string, 5000)...),
	} {
		for i := range r.GetDescriptors() {
			r.Descriptors[i] = &commonv3.RateLimitDescriptor{}
		}
		_, err := c.ShouldRateLimit(t.Context(), r)
		require.Equal(t, codes.InvalidArgument, status.Code(err))
		require.ErrorContains(t, err, want)
	}
	require.Equal(t, "OK OK", codesOf(t, c, &ratelimitv3.RateLimitRequest{Domain: "shop", Descriptors: []*commonv3.RateLimitDescriptor{{}}}))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := c.ShouldRateLimit(ctx, request("address=a"))
	require.Equal(t, codes.Canceled, status.Code(err))
}

func TestTwoServersAdmitExactlyTheLimitTogether(t *testing.T) {
	redis := startRedis(t)
	const limit, callers, calls = 500, 8, 100
	config := of(`
domain: shop
descriptors:
  - key: k
    rate_limit: {unit: year, requests_per_unit: 500}
  - key: all
    rate_limit: {unit: year, requests_per_unit: 100000}
`)
	var admitted, refused atomic.Int64
	var wg sync.WaitGroup
	var services []*envoyrls.Service
	for range 2 {
		c, s := start(t, envoyrls.Options{Client: redis.client(t), Config: config, Nodes: 2})
		services = append(services, s)
		for range callers {
			wg.Go(func() {
				for range calls {
					res, err := c.ShouldRateLimit(t.Context(), request("k=1", "all=1"))
					switch {
					case err != nil:
						t.Error(err)
					case res.GetOverallCode() == ok:
						admitted.Add(1)
					default:
						refused.Add(1)
					}
				}
			})
		}
	}
	wg.Wait()
	require.EqualValues(t, limit, admitted.Load())
	require.EqualValues(t, 2*callers*calls-limit, refused.Load())
	c, _ := start(t, envoyrls.Options{Client: redis.client(t), Config: config})
	r := request("all=1")
	r.Descriptors[0].HitsAddend = wrapperspb.UInt64(0)
	res, err := c.ShouldRateLimit(t.Context(), r)
	require.NoError(t, err)
	require.EqualValues(t, 100000-limit, res.GetStatuses()[0].GetLimitRemaining(), "refused requests took nothing of the other limit")
	for _, s := range services {
		require.Zero(t, s.Stats().Unanswered)
	}
}

func TestWithoutRedis(t *testing.T) {
	redis := startRedis(t)
	file := strings.Replace(shop, "requests_per_unit: 2}", "requests_per_unit: 10}", 1)
	clients := map[string]ratelimitv3.RateLimitServiceClient{}
	services := map[string]*envoyrls.Service{}
	for name, o := range map[string]envoyrls.Options{
		"divide": {Nodes: 2}, "allow": {Fallback: cluster.AllowAll}, "refuse": {Fallback: cluster.RefuseAll},
	} {
		o.Client, o.Config, o.Prefix, o.Timeout = redis.client(t), of(file), name, time.Second
		clients[name], services[name] = start(t, o)
		require.Equal(t, "OK OK", codesOf(t, clients[name], request("address=a")))
	}
	redis.kill()
	admitted := 0
	for range 20 {
		if codesOf(t, clients["divide"], request("address=a")) == "OK OK" {
			admitted++
		}
		require.Equal(t, "OK OK OK OK", codesOf(t, clients["allow"], request("address=a", "tenant=1", "tried=1")))
		_, err := clients["refuse"].ShouldRateLimit(t.Context(), request("address=a"))
		require.Equal(t, codes.Unavailable, status.Code(err))
		require.Equal(t, "OK OK OK", codesOf(t, clients["refuse"], request("address=office", "unknown")), "what needs no tokens passes")
		require.Equal(t, "OK OK", codesOf(t, clients["refuse"], request("tried=1")), "a shadow refuses nothing")
		require.Equal(t, "OVER OVER", codesOf(t, clients["allow"], request("address=banned")))
	}
	require.Equal(t, 5, admitted, "a half of the limit")
	for name, s := range services {
		require.Positive(t, s.Stats().Unanswered, name)
	}
	require.EqualValues(t, 20, services["refuse"].Stats().Failed)
	require.True(t, redis.start(t), "the same port")
	require.Eventually(t, func() bool { // the breakers try again after 4 s at most
		res, err := clients["refuse"].ShouldRateLimit(t.Context(), request("address=z"))
		return err == nil && res.GetOverallCode() == ok
	}, 15*time.Second, 20*time.Millisecond)
}

// A Redis that hangs delays an answer by one Timeout, not by one for the limits and one for the shadows. It is the worst case: Envoy
// waits for 20 ms.
func TestHangingRedisDelaysAnAnswerByOneTimeout(t *testing.T) {
	redis := startRedis(t)
	const timeout = time.Second
	c, s := start(t, envoyrls.Options{Client: redis.client(t), Config: of(shop), Timeout: timeout, Fallback: cluster.AllowAll})
	require.Equal(t, "OK OK", codesOf(t, c, request("address=a")))
	redis.pause()
	begin := time.Now()
	require.Equal(t, "OK OK OK OK", codesOf(t, c, request("address=a", "tenant=1", "tried=1")))
	require.Less(t, time.Since(begin), timeout*17/10, "twice the timeout without the bound")
	require.Positive(t, s.Stats().Unanswered)
}

func TestReloadUnderLoad(t *testing.T) {
	var file text
	file.Store(shop)
	c, s := start(t, envoyrls.Options{
		Client: startRedis(t).client(t), Every: 10 * time.Millisecond,
		Config: map[string]rules.Source{"shop.yaml": file.read},
	})
	var wg sync.WaitGroup
	stop := make(chan struct{})
	var asked atomic.Int64
	for i := range 4 {
		wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				// The POST limit of a new tenant is 1 in every version of the file, so no request sees half a file.
				tenant := fmt.Sprintf("tenant=%d.%d method=POST", i, n)
				a, b := codesOf(t, c, request(tenant)), codesOf(t, c, request(tenant))
				if a != "OK OK" || b != "OVER OVER" {
					t.Errorf("%s: %s, then %s", tenant, a, b)
					return
				}
				asked.Add(2)
			}
		})
	}
	for range 2 {
		require.Equal(t, "OK OK", codesOf(t, c, request("address=a")))
	}
	for i := range 20 {
		version := strings.Replace(shop, "requests_per_unit: 1000}", fmt.Sprintf("requests_per_unit: %d}", 2000+i), 1)
		applied := s.Stats().Applied
		file.Store(version)
		require.Eventually(t, func() bool { return s.Stats().Applied > applied }, 10*time.Second, time.Millisecond)
		bad := []string{gone, "", "domain: shop\ndescriptors: [{key: a, rate_limit: {unit: eon, requests_per_unit: 1}}]", version + "  - {key: vip}\n"}[i%4]
		before := s.Stats()
		file.Store(bad)
		require.Eventually(t, func() bool {
			st := s.Stats()
			return st.Refused+st.Unreadable > before.Refused+before.Unreadable && st.Err != nil
		}, 10*time.Second, time.Millisecond)
		require.Equal(t, "OVER OVER", codesOf(t, c, request("address=a")), "the last good file stays, and used tokens stay used")
	}
	raised := strings.Replace(shop, "requests_per_unit: 2}", "requests_per_unit: 3}", 1)
	file.Store(raised)
	require.Eventually(t, func() bool { return s.Stats().Err == nil }, 10*time.Second, time.Millisecond)
	require.Equal(t, "OK OK", codesOf(t, c, request("address=a")), "one more")
	require.Equal(t, "OVER OVER", codesOf(t, c, request("address=a")))
	close(stop)
	wg.Wait()
	require.Greater(t, asked.Load(), int64(100))
	require.Less(t, s.Stats().Age, 5*time.Second)
	require.NoError(t, s.Reload(t.Context()))
	s.Close()
	require.ErrorContains(t, s.Reload(t.Context()), "closed")
}

func TestLeasedRules(t *testing.T) {
	redis := startRedis(t)
	const file = `
domain: shop
descriptors:
  - key: fast
    rate_limit: {unit: minute, requests_per_unit: 6000}
  - key: slow
    rate_limit: {unit: year, requests_per_unit: 40}
  - key: tried
    shadow_mode: true
    rate_limit: {unit: minute, requests_per_unit: 6000}
`
	var source text
	source.Store(file)
	c, s := start(t, envoyrls.Options{
		Client: redis.client(t), Every: 10 * time.Millisecond, LeaseFrom: limiter.Per(100, time.Second),
		Config: map[string]rules.Source{"shop.yaml": source.read},
	})
	hits := request("fast=1")
	hits.HitsAddend = 6001
	require.Equal(t, "OVER OVER", codesOf(t, c, hits), "more than it ever holds")
	begin := time.Now()
	for i := 0; ; i++ { // a Redis that began empty gives out a twentieth at first
		hits.Descriptors[0] = descriptor(fmt.Sprintf("fast=new%d", i))
		hits.HitsAddend = 3000
		if codesOf(t, c, hits) == "OK OK" {
			break
		}
		require.Less(t, time.Since(begin), 15*time.Second)
	}
	var admitted int
	begin, admitted = time.Now(), 3000
	for hits.HitsAddend = 100; codesOf(t, c, hits) == "OK OK"; admitted += 100 {
		require.Less(t, admitted, 100_000)
	}
	require.LessOrEqual(t, admitted, 6000+int(100*time.Since(begin).Seconds())+200, "burst, rate, and the largest cost twice")

	for range 40 { // a leased limit and one in Redis pass together, or neither does
		require.Equal(t, "OK OK OK", codesOf(t, c, request("slow=1", "fast=2")))
	}
	require.Equal(t, "OVER OVER OK", codesOf(t, c, request("slow=1", "fast=2")))
	r := request("fast=2")
	r.Descriptors[0].HitsAddend = wrapperspb.UInt64(0)
	res, err := c.ShouldRateLimit(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, ok, res.GetOverallCode())
	require.LessOrEqual(t, res.GetStatuses()[0].GetLimitRemaining(), uint32(6000))
	require.Equal(t, "OK OK", codesOf(t, c, request("tried=1")))

	applied := s.Stats().Applied
	source.Store(strings.ReplaceAll(file, "6000}", "9000}"))
	require.Eventually(t, func() bool { return s.Stats().Applied > applied }, 10*time.Second, time.Millisecond)
	res, err = c.ShouldRateLimit(t.Context(), r)
	require.NoError(t, err)
	require.EqualValues(t, 9000, res.GetStatuses()[0].GetCurrentLimit().GetRequestsPerUnit())
	require.Equal(t, "OK OK", codesOf(t, c, request("fast=3")))
}
