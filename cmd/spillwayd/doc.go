// Command spillwayd is a reverse proxy that keeps a service in any language at full capacity when it gets more requests than it can
// serve. It admits the requests that the service can finish in time, and refuses the rest before they reach it.
//
//	go install github.com/spillway-go/spillway/cmd/spillwayd@latest
//	spillwayd -to http://127.0.0.1:9000                # listens on :8080
//	spillwayd -config /etc/spillwayd/spillwayd.yaml    # everything else
//	spillwayd -check /etc/spillwayd/spillwayd.yaml     # reads a file and says what is wrong with it
//	spillwayd -licenses                                # prints the licenses of the works of others in it
//
// # How it learns
//
// The CPU of the proxy says nothing about the service, so spillwayd does not look at it. It learns from answers: how
// many there are, how long they take, and how many requests are in flight. That is the part of the law of package
// shedder that needs no CPU. The service may report its load in the header Endpoint-Load-Metrics (ORCA). Then spillwayd
// feeds the figures into the same law: cpu_utilization is the CPU, and an application_utilization of 1 or more is a
// sign of overload. If shedder.slo is set, it bounds the latency too.
//
// An answer 503 or 429 of the service means that it refused the request. It is no failure: it says nothing about the latency, it does
// not eject a backend, and it lowers the share of requests that this backend gets.
//
// # The file
//
// All fields are optional, except backend.urls. Durations are texts such as "250ms", rates such as "100/s", and sizes such as
// "1MiB". An unknown field or a wrong value is an error that names the field and the value.
//
//	listen:                          # several are possible
//	  - address: ":8080"             # host and port; the default is :8080
//	    tls:                         # without it, HTTP/1.1 and HTTP/2 in clear text (h2c)
//	      cert: /etc/tls/tls.crt     # read again within a second of a change
//	      key: /etc/tls/tls.key
//	    proxyProtocol: [10.0.0.0/8]  # balancers that begin each connection with a PROXY header, version 1 or 2
//	    maxConnections: 20000        # open at once; more wait in the queue of the kernel
//	    maxConnectionsPerClient: 0   # per IPv4 address or IPv6 /64; more are closed at once; 0 is no limit
//	    acceptRate: 5000/s           # new connections, before TLS; more wait; the default is no limit
//	    maxHeader: 32KiB             # per request
//	    maxStreams: 250              # HTTP/2 requests at once, per connection
//	    maxUseless: 1000             # requests per second of a client that its own limits refuse, or that it resets within 5ms; with
//	                                 # more it is shut out for 10s. Those of trusted peers do not count
//	    headerTimeout: 5s            # to read the header of a request
//	    idleTimeout: 75s             # between two requests
//	    bodyTimeout: 20s             # wait for the body of a request, in all; each KiB of it adds 1s. None for gRPC
//	    answerTimeout: 30s           # until the client takes a part of an answer, 32 KiB at most
//	admin:
//	  address: localhost:8081        # /healthz, /readyz, /metrics and the live page; "off" for none
//	backend:
//	  urls: [http://127.0.0.1:9000]  # http, https, h2c (HTTP/2 in clear text), or unix:/run/app.sock
//	  host: preserve                 # the Host that the backend sees: preserve (the client's) or backend
//	  cpu: backend                   # backend (ORCA), or machine if the backend runs on this machine
//	  passLoad: false                # pass Endpoint-Load-Metrics and Spillway-Overload on to clients
//	  connectTimeout: 2s
//	  maxConnections: 0              # to each backend; 0 is no limit
//	  ca: ""                         # PEM file with the authorities of https backends; "" for those of the system
//	  timeoutHeader: ""              # pass the remaining time on, such as Connect-Timeout-Ms
//	  abandoned: 10s                 # how long a request runs on, and counts, whose client has left before the answer began
//	  health: {path: /healthz, every: 5s, timeout: 1s, failures: 3, successes: 1}   # active checks; without it, none
//	  eject: {failureRate: 0.5, consecutive: 10, openFor: 5s, share: 0.5}           # by answers; with several backends
//	  retry: {attempts: 2, backoff: 25ms, tokens: 10}                               # bodyless idempotent requests; without it, none
//	shedder: {slo: 0s, cpuThreshold: 0.9, minLimit: 0, maxLimit: 0, maxQueue: 0, maxWait: 250ms, fairRoutes: false, disabled: false}
//	redis:                           # for limits that several processes share; without it, none
//	  url: redis://user@redis:6379/0 # rediss for TLS, unix:///path for a socket; of one server, or of one in a cluster
//	  passwordFile: ""               # read for each connection, so that it can change
//	  ca: ""                         # PEM file with the authorities of Redis; "" for those of the system
//	  cluster: false                 # a Redis Cluster; further servers in the URL: ?addr=host:6379&addr=host:6379
//	  prefix: spillwayd              # of all keys; services that share a Redis need one each
//	  nodes: 3                       # processes that share the limits; required
//	  timeout: 100ms                 # the longest wait of a request for Redis
//	  term: 10s                      # how long the places of a process that died stay taken
//	  fallback: divide               # while Redis does not answer. divide: each process has its part of the limits; allow; refuse
//	trusted: [10.0.0.0/8]            # proxies in front: their X-Forwarded-For, -Proto, -Host and priorities count
//	client:
//	  key: none                      # who a request belongs to: none, ip, or header
//	  header: X-Tenant               # for key: header; a request without it belongs to its address
//	  maxConcurrent: 0               # requests in flight per client
//	  rateLimitHeaders: false        # tell clients what they have left of rates and quotas: RateLimit, RateLimit-Policy
//	priority:
//	  header: Spillway-Priority      # from trusted peers
//	  lowerFirst: false              # low numbers are important
//	  browser: false                 # read Priority: u= and Sec-Purpose of browsers
//	maxBody: 0                       # of a request; 0 is no limit
//	routes:                          # the most specific match counts; requests without a match have no route
//	  - match: "POST /payments"      # a pattern of http.ServeMux: [METHOD ][HOST]/PATH
//	    name: payments               # in metrics and rules; the default is the match
//	    priority: critical           # instead of the priority of the request
//	    deadline: 2s                 # the request ends then; clients may ask for less
//	    rate: {rate: 100/s, burst: 200, maxWait: 0s, maxQueue: 0, per: client, shared: false}   # per: client, all or backend (that
//	                                 # is up); maxWait: wait for a turn instead of a 429; maxQueue: requests that wait, 128 with
//	                                 # maxWait; shared: by all processes, through redis
//	    quotas: [{limit: 10000, every: day, zone: UTC, per: client, shared: true}]   # every: minute, hour, day or month; per: client, all
//	    concurrency: {limit: 20, per: all, shared: false}   # requests at once; per: client, all
//	    maxBody: 1MiB
//	    exempt: false                # bypasses the gate, and is only counted
//	log: {access: off, refusals: 10} # access: off or on, in JSON; refusals: lines per second at most, also while access is off
//	drain: {delay: 0s, timeout: 30s} # after SIGTERM: how long to answer with "Connection: close", then how long to wait
//	dryRun: false                    # count what would be refused, and refuse nothing
//	state: auto                      # file with what the shedder has learnt, for restarts under load; off for none. Auto is a file in
//	                                 # $STATE_DIRECTORY, or in the user's folder for caches
//	rules: ""                        # another file for the numbers, in the form of package rules; "" for this file
//
// The numbers of shedder and of the rate, quotas and concurrency of routes change while spillwayd runs, within a second after the
// file changes. A bad file changes nothing. All other fields need a restart; a file that changes them is refused, and the log says which.
//
// # Signals
//
// SIGTERM and SIGINT drain: /readyz answers 503, and listeners stay open for drain.delay. Then they close, and every request whose
// header has been read is answered, for up to drain.timeout. Open connections get requests answered for a further second, with
// "Connection: close". A second signal ends the process at once.
package main
