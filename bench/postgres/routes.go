package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A route is one kind of request.
type route struct {
	name  string
	query string
	args  func() []any
}

// routeNames returns the names of the routes, in their order.
func routeNames() [routeCount]string { return [...]string{"one", "page", "sum"} }

const routeCount = 3

// routes returns the routes of the app, the cheap ones first.
func routes() []route {
	names := routeNames()
	key := func() []any { return []any{1 + rand.IntN(rowCount)} }
	page := func() []any { return []any{1 + rand.IntN(rowCount-100)} }
	return []route{
		{names[0], "select id, customer, kind, amount::float8, note from orders where id = $1", key},
		{names[1], "select id, customer, kind, amount::float8, note from orders where id >= $1 order by id limit 100", page},
		{names[2], `select 0, count(*)::int4, kind, sum(amount)::float8, max(note) from orders where customer <> $1 group by kind`,
			func() []any { return []any{rand.IntN(1000)} }},
	}
}

// A mix is the share of the requests for each route.
type mix struct {
	name   string
	shares []float64 // in the order of routes
}

func mixes() []mix {
	return []mix{
		{"mixed", []float64{0.7, 0.2, 0.1}},
		{"one", []float64{1, 0, 0}},
		{"page", []float64{0, 1, 0}},
		{"dear", []float64{0, 0, 1}},
	}
}

func findMix(name string) (mix, error) {
	all := mixes()
	if i := slices.IndexFunc(all, func(m mix) bool { return m.name == name }); i >= 0 {
		return all[i], nil
	}
	return mix{}, fmt.Errorf("-mixes: no mix %q; there are mixed, one, page and dear", name)
}

// pick returns a route by its index, for a number from 0 to 1.
func (m mix) pick(x float64) int {
	for i, share := range m.shares {
		if x -= share; x < 0 {
			return i
		}
	}
	return len(m.shares) - 1
}

// nth returns the route of the nth of many requests, so that any hundred of them in a row have its shares: multiples of the golden ratio
// fill the range from 0 to 1 evenly (Weyl).
func (m mix) nth(n int64) int {
	_, x := math.Modf(float64(n) / math.Phi)
	return m.pick(x)
}

// An order is a row of the table, or a group of them.
type order struct {
	ID       int32   `json:"id"`
	Customer int32   `json:"customer"`
	Kind     string  `json:"kind"`
	Amount   float64 `json:"amount"`
	Note     string  `json:"note"`
}

// serve answers with the rows of r's query as JSON. A query that fails is a 500; one whose client has gone needs no answer.
func (r route) serve(pool *pgxpool.Pool) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		found, err := r.find(req.Context(), pool)
		if err != nil {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(found) // the client may have gone
	}
}

func (r route) find(ctx context.Context, pool *pgxpool.Pool) ([]order, error) {
	rows, err := pool.Query(ctx, r.query, r.args()...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[order])
}
