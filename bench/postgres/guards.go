package main

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/bench/peers"
	"github.com/spillway-go/spillway/lab/overload"
	"github.com/spillway-go/spillway/middleware/httpgate"
	"github.com/spillway-go/spillway/shedder"
	"github.com/spillway-go/spillway/stats"
)

// Guards beside none, fixed:N and the peers.
const (
	perRoute       = "spillway-route" // a shedder for each route
	withSLO        = "spillway-slo"   // one shedder with an objective
	fairRoutes     = "spillway-fair"  // one shedder that divides the busy time among the routes
	throttlePrefix = "throttle:"      // chi's Throttle
)

// views are the figures of the guard of an app, by the name of its shedder: the route, or "".
type views map[string]overload.StatsFunc

// newApp returns the handler of the app, behind the guard of the given name in its first state.
func newApp(guard string, slo time.Duration, pool *pgxpool.Pool) (http.Handler, views, error) {
	router, all := chi.NewRouter(), views{}
	var cpu *stats.Sensor[stats.CPUSample]
	if guard == perRoute {
		var err error
		if cpu, err = stats.NewCPU(nil); err != nil {
			return nil, nil, err
		}
	}
	for _, r := range routes() {
		var h http.Handler = r.serve(pool)
		if guard == perRoute {
			guarded, view, err := shed(h, &shedder.Options{CPU: cpu})
			if err != nil {
				return nil, nil, err
			}
			h, all[r.name] = guarded, view
		}
		router.Method(http.MethodGet, "/"+r.name, h)
	}
	if guard == perRoute {
		return router, all, nil
	}
	g, err := findGuard(guard, slo)
	if err != nil {
		return nil, nil, err
	}
	h, view, err := g.Wrap(router)
	if view != nil {
		all[""] = view
	}
	return h, all, err
}

// findGuard returns a guard in front of all routes together.
func findGuard(name string, slo time.Duration) (overload.Guard, error) {
	if name == "none" {
		return overload.None(), nil
	}
	if limit, ok := overload.FixedLimit(name); ok {
		return overload.Fixed(limit), nil
	}
	if name == withSLO {
		return overload.Guard{Name: name, Wrap: func(next http.Handler) (http.Handler, overload.StatsFunc, error) {
			return shed(next, &shedder.Options{SLO: slo})
		}}, nil
	}
	if name == fairRoutes {
		return overload.Guard{Name: name, Wrap: func(next http.Handler) (http.Handler, overload.StatsFunc, error) {
			return shed(next, &shedder.Options{FairRoutes: true})
		}}, nil
	}
	if text, ok := strings.CutPrefix(name, throttlePrefix); ok {
		limit, err := strconv.Atoi(text)
		if err != nil || limit < 1 {
			return overload.Guard{}, fmt.Errorf("guard %q: the limit must be a number of at least 1", name)
		}
		return overload.Guard{Name: name, Wrap: func(next http.Handler) (http.Handler, overload.StatsFunc, error) {
			return middleware.Throttle(limit)(next), nil, nil
		}}, nil
	}
	known := []string{"none", "fixed:N", throttlePrefix + "N", perRoute, withSLO, fairRoutes}
	all := peers.Guards()
	for _, g := range all {
		known = append(known, g.Name)
	}
	if i := slices.IndexFunc(all, func(g overload.Guard) bool { return g.Name == name }); i >= 0 {
		return all[i], nil
	}
	return overload.Guard{}, fmt.Errorf("no guard %q; there are %s", name, strings.Join(known, ", "))
}

// shed puts a shedder with the given options before next.
func shed(next http.Handler, o *shedder.Options) (http.Handler, overload.StatsFunc, error) {
	s, err := shedder.New(o)
	if err != nil {
		return nil, nil, err
	}
	gate := spillway.New(s)
	named := httpgate.Options{Request: func(r *http.Request) spillway.Request { return spillway.Request{Route: routeOf(r)} }}
	return httpgate.Handler(gate, &named)(next), func() overload.View { return overload.Shedding(gate, s) }, nil
}

// routeOf returns the name of the route of a request, or "" if there is none.
func routeOf(r *http.Request) string {
	names := routeNames()
	if name := strings.TrimPrefix(r.URL.Path, "/"); slices.Contains(names[:], name) {
		return name
	}
	return ""
}
