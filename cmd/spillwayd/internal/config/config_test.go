package config

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/rules"
	"github.com/spillway-go/spillway/shedder"
)

// documented returns the file in the documentation of the command.
func documented(t *testing.T) string {
	t.Helper()
	doc, err := os.ReadFile("../../doc.go")
	require.NoError(t, err)
	_, file, found := strings.Cut(string(doc), "//\tlisten: ")
	require.True(t, found)
	file, _, found = strings.Cut("//\tlisten: "+file, "\n//\n")
	require.True(t, found)
	return strings.ReplaceAll(file, "//\t", "")
}

func TestTheDocumentedFileIsValid(t *testing.T) {
	file := strings.ReplaceAll(documented(t), "key: none ", "key: header ")
	c, err := Parse([]byte(file))
	require.NoError(t, err, file)
	require.Equal(t, spillway.Critical, *c.Routes[0].Priority)
	require.Equal(t, &Rate{Rate: limiter.Per(100, time.Second), Burst: 200, Per: PerClient}, c.Routes[0].Rate)
	require.Equal(t, Size(1<<20), c.Routes[0].MaxBody)
	require.Equal(t, 5*time.Second, c.Listen[0].HeaderTimeout)
	// The documented values of fields that have defaults are the defaults.
	plain, err := Parse([]byte("backend: {urls: [http://127.0.0.1:9000]}"))
	require.NoError(t, err)
	require.Equal(t, plain.Shedder, c.Shedder)
	require.Equal(t, plain.Drain, c.Drain)
	require.Equal(t, plain.Log, c.Log)
	require.Equal(t, plain.Admin, c.Admin)
	require.Equal(t, plain.Backend.Eject, c.Backend.Eject)
	require.Equal(t, plain.Listen[0].MaxConnections, c.Listen[0].MaxConnections)
	require.Equal(t, plain.Listen[0].MaxHeader, c.Listen[0].MaxHeader)
	require.Equal(t, plain.Listen[0].MaxStreams, c.Listen[0].MaxStreams)
	require.Equal(t, plain.Priority, c.Priority)
}

// Every field is in the documentation.
func TestEveryFieldIsDocumented(t *testing.T) {
	file := documented(t)
	source, err := os.ReadFile("config.go")
	require.NoError(t, err)
	for _, part := range strings.Split(string(source), "`conf:\"")[1:] {
		name, _, _ := strings.Cut(part, `"`)
		require.Contains(t, file, name+":")
	}
}

func TestErrorsNameFieldAndValue(t *testing.T) {
	const backend = "backend: {urls: [http://a:1]}\n"
	for file, want := range map[string]string{
		"":                                                      `backend.urls: must have 1 to 256 entries, got 0`,
		"[]":                                                    `: must be a mapping, got []`,
		"backends: {}":                                          `backends: there is no such field; the file has listen, admin, backend`,
		"backend: {url: [a]}":                                   `backend.url: there is no such field; backend has urls`,
		"backend: {urls: http://a}":                             `backend.urls: must be a list, got "http://a"`,
		"backend: {urls: [a]}":                                  `backend.urls[0]: must be an URL with http, https or h2c and a host, or unix: and a path, got "a"`,
		"backend: {urls: [http://a/b]}":                         `backend.urls[0]: must have no path, query or user, got "http://a/b"`,
		"backend: {urls: ['unix:a']}":                           `backend.urls[0]: must be unix: and an absolute path, got "unix:a"`,
		"backend: {urls: [http://a, http://a]}":                 `backend.urls[1]: must not stand twice, got "http://a"`,
		backend + "shedder: {slo: 250}":                         `shedder.slo: must be a duration such as "250ms", at least 0, got 250`,
		backend + "shedder: {slo: 1ms}":                         `shedder.slo: must be at least 10ms, or 0s for none, got 1ms`,
		backend + "shedder: {cpuThreshold: 90}":                 `shedder.cpuThreshold: must be in (0, 1], got 90`,
		backend + "shedder: {maxLimit: many}":                   `shedder.maxLimit: must be a whole number from 0 to 2147483647, got "many"`,
		backend + "shedder: {disabled: 1}":                      `shedder.disabled: must be true or false, got 1`,
		backend + "trusted: [10.0.0.1]":                         `trusted[0]: netip.ParsePrefix("10.0.0.1"): no '/', got "10.0.0.1"`,
		backend + "trusted: [0.0.0.0/0]":                        `trusted[0]: must be a network of at least 1 bit, got "0.0.0.0/0"`,
		backend + "maxBody: 1MB":                                `maxBody: must be a size such as "512KiB", got "1MB"`,
		backend + "client: {key: cookie}":                       `client.key: must be one of none, ip, header, got "cookie"`,
		backend + "client: {key: header}":                       `client.header: must be a header field, got ""`,
		backend + "listen: [{address: 80}]":                     `listen[0].address: must be a text, got 80`,
		backend + "listen: [{address: '80'}]":                   `listen[0].address: must be a host and a port, such as :8080, got "80"`,
		backend + "listen: [{maxHeader: 1}]":                    `listen[0].maxHeader: must be 1KiB to 16MiB, got 1 bytes`,
		backend + "listen: [{tls: {cert: a}}]":                  `listen[0].tls: must name the files cert and key, got "a" and ""`,
		backend + "routes: [{match: items}]":                    `routes[0].match: must be a pattern of http.ServeMux`,
		backend + "routes: [{match: /a}, {match: /a, name: b}]": `routes[1].match: must be a pattern of http.ServeMux that no other route has`,
		backend + "routes: [{match: /a, priority: high}]":       `routes[0].priority: `,
		backend + "routes: [{match: /a, rate: {rate: 1/s, per: all, maxQueue: 3}}]":                                                    `routes[0].rate.maxQueue: needs maxWait, which is 0s, got 3`,
		backend + "routes: [{match: /a, rate: {rate: fast}}]":                                                                          `routes[0].rate.rate: `,
		backend + "routes: [{match: /a, rate: {rate: 1/s}}]":                                                                           `routes[0].rate.per: client needs client.key to be ip or header, which is none`,
		backend + "routes: [{match: /a, rate: {rate: 1/s, per: all}, limit: 3}]":                                                       `routes[0].limit: there is no such field; routes[0] has match`,
		backend + "routes: [{match: /a, concurrency: {limit: 0}}]":                                                                     `routes[0].concurrency.limit: must be at least 1, got 0`,
		backend + "dryRun: true\nshedder: {maxQueue: 5}":                                                                               `shedder.maxQueue: must be 0 in a dry run`,
		backend + "dryRun: true\nroutes: [{match: /a, rate: {rate: 1/s, per: all, maxWait: 1s}}]":                                      `routes[0].rate.maxWait: must be 0s in a dry run`,
		backend + "redis: {url: localhost}":                                                                                            `redis.url: must be an URL such as`,
		backend + "redis: {url: 'redis://:secret@[bad', nodes: 1}":                                                                     `redis.url: must be an URL such as`,
		backend + "redis: {url: 'redis://a'}":                                                                                          `redis.nodes: must be the number of processes that share the limits, 1 to 65536, got 0`,
		backend + "redis: {url: 'redis://a', nodes: 1, ca: a.pem}":                                                                     `redis.ca: needs an URL with rediss, got "redis"`,
		backend + "redis: {url: 'redis://a', nodes: 1, term: 1ms}":                                                                     `redis.term: must be 1s to 1h, got 1ms`,
		backend + "routes: [{match: /a, concurrency: {limit: 3, shared: true}}]":                                                       `routes[0].concurrency.shared: needs redis.url`,
		backend + "redis: {url: 'redis://a', nodes: 1}\nroutes: [{match: /a, concurrency: {limit: 2000000, shared: true}}]":            `routes[0].concurrency.limit: must be at most 1048576 if it is shared, got 2000000`,
		backend + "redis: {url: 'redis://a', nodes: 1, timeout: 2m}":                                                                   `redis.timeout: must be 1ms to 1m, got 2m0s`,
		backend + "redis: {url: 'redis://a', nodes: 1, prefix: '{a}'}":                                                                 `redis.prefix: must have no braces, got "{a}"`,
		backend + "redis: {url: 'redis://a', nodes: 1, fallback: hold}":                                                                `redis.fallback: must be one of divide, allow, refuse, got "hold"`,
		backend + "routes: [{match: /a, rate: {rate: 1/s, per: all, shared: true}}]":                                                   `routes[0].rate.shared: needs redis.url`,
		backend + "routes: [{match: /a, quotas: [{limit: 1, every: day, per: all, shared: true}]}]":                                    `routes[0].quotas[0].shared: needs redis.url`,
		backend + "redis: {url: 'redis://a', nodes: 1}\nroutes: [{match: /a, rate: {rate: 1/s, per: backend, shared: true}}]":          `routes[0].rate.shared: must be false with maxWait or per: backend`,
		backend + "redis: {url: 'redis://a', nodes: 1}\nroutes: [{match: /a, rate: {rate: 1/s, per: all, shared: true, maxWait: 1s}}]": `routes[0].rate.shared: must be false with maxWait or per: backend`,
		backend + "routes: [{match: /a, quotas: [{limit: 1, every: week, per: all}]}]":                                                 `routes[0].quotas[0].every: must be one of minute, hour, day, month, got "week"`,
		backend + "routes: [{match: /a, quotas: [{limit: 0, every: day, per: all}]}]":                                                  `routes[0].quotas[0]: `,
		backend + "routes: [{match: /a, quotas: [{limit: 1, every: day, zone: Mars, per: all}]}]":                                      `routes[0].quotas[0].zone: must be a time zone such as Europe/Berlin, got "Mars"`,
		backend + "routes: [{match: /a, quotas: [{limit: 1, every: day}]}]":                                                            `routes[0].quotas[0].per: client needs client.key`,
		backend + "routes: [{match: /a, quotas: [{limit: 1, every: day, per: all}, {limit: 2, every: day, per: all}]}]":                `routes[0].quotas[1]: there must be one quota for each every and per, got a second for "day" and "all"`,
		backend + backend:  `duplicate key "backend"`,
		backend + "drain:": `drain: must not be empty`,
	} {
		_, err := Parse([]byte(file))
		require.ErrorContains(t, err, want, "%q", file)
	}
}

func TestNumbersFollowTheFile(t *testing.T) {
	const file = "backend: {urls: [http://a:1]}\nshedder: {slo: 250ms}\n" +
		"routes: [{match: /a, name: a, rate: {rate: 10/s, per: all}, concurrency: {limit: 3}, quotas: [{limit: 50, every: day, per: all}]}]\n"
	c, err := Parse([]byte(file))
	require.NoError(t, err)
	shed := spillway.Must(shedder.New(&shedder.Options{SLO: c.Shedder.SLO}))
	rate := spillway.Must(limiter.New(limiter.Bucket{Rate: c.Routes[0].Rate.Rate}))
	places := spillway.Must(limiter.New(limiter.Concurrency{Limit: 3}))
	day := spillway.Must(limiter.New(c.Routes[0].Quotas[0].Rule("day")))
	set, err := rules.New(map[string]rules.Target{
		ShedderTarget: rules.Of(shed), RateTarget("a"): rules.Of(rate), "a.all.day": rules.Of(day), ConcurrencyTarget("a"): rules.Of(places),
	})
	require.NoError(t, err)
	follow := c.Follow()
	apply := func(file string) error {
		document, err := follow([]byte(file))
		if err != nil {
			return err
		}
		return set.Apply(document)
	}
	require.NoError(t, apply(file))
	require.Equal(t, 250*time.Millisecond, shed.Options().SLO)
	require.NoError(t, apply(strings.NewReplacer("250ms", "100ms", "10/s", "20/s", "limit: 3", "limit: 7", "limit: 50", "limit: 70").Replace(file)))
	require.Equal(t, 100*time.Millisecond, shed.Options().SLO)
	require.Equal(t, limiter.Bucket{Rate: limiter.Per(20, time.Second), Burst: 20, Name: "token bucket"}, rate.Rule())
	require.Equal(t, limiter.FixedWindow{Limit: 70, Calendar: limiter.EveryDay, Location: time.UTC, Name: "day"}, day.Rule())
	require.Equal(t, 7, places.Rule().(limiter.Concurrency).Limit)

	for change, want := range map[string]string{
		"a:1]>a:2]":                           "backend.urls[0]: a change needs a restart",
		"match: /a>match: /b":                 "routes[0].match: a change needs a restart",
		"per: all>per: all, burst: -1":        "routes[0].rate.burst: must be",
		", concurrency: {limit: 3}>":          "routes[0].concurrency: a change needs a restart",
		"{limit: 3}>{limit: 3, per: backend}": "routes[0].concurrency.per: must be one of client, all",
		"slo: 250ms>slo: 250ms, maxQueue: 3":  "MaxQueue",
		"every: day>every: hour":              "routes[0].quotas[0].every: a change needs a restart",
	} {
		from, to, _ := strings.Cut(change, ">")
		require.Contains(t, file, from)
		require.ErrorContains(t, apply(strings.Replace(file, from, to, 1)), want, change)
		require.Equal(t, 100*time.Millisecond, shed.Options().SLO)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("backend: {urls: [http://a:1]}\nroutes: [{match: /a, rate: {rate: 1/s, per: all}}]")
	f.Fuzz(func(t *testing.T, file string) {
		c, err := Parse([]byte(file))
		if err != nil {
			return
		}
		_, err = c.Document()
		require.NoError(t, err)
		_, err = c.Follow()([]byte(file))
		require.NoError(t, err)
	})
}
