package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	poolSize  = 8                     // connections to the database
	queryTime = 25 * time.Millisecond // how long a query keeps its connection, in both stores
)

var errNoItem = errors.New("no such item")

// A store is the database.
type store interface {
	fmt.Stringer
	// item returns the name of an item, or errNoItem.
	item(ctx context.Context, id string) (string, error)
	close()
}

// openStore connects to PostgreSQL, or returns a slowPool if dsn is empty.
func openStore(ctx context.Context, dsn string) (store, error) {
	if dsn == "" {
		return make(slowPool, poolSize), nil
	}
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	config.MinConns, config.MaxConns = poolSize, poolSize
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	for _, statement := range []string{
		"CREATE TABLE IF NOT EXISTS shop_items (id int PRIMARY KEY, name text NOT NULL)",
		"INSERT INTO shop_items SELECT n, 'item ' || n FROM generate_series(1, 100) n ON CONFLICT DO NOTHING",
	} {
		if _, err := pool.Exec(ctx, statement); err != nil {
			pool.Close()
			return nil, fmt.Errorf("the database refuses %.40q: %w", statement, err)
		}
	}
	return postgres{pool}, nil
}

// A slowPool stands for a database: a place is a connection.
type slowPool chan struct{}

func (p slowPool) item(ctx context.Context, id string) (string, error) {
	select {
	case p <- struct{}{}:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	defer func() { <-p }()
	time.Sleep(queryTime)
	if n, err := strconv.Atoi(id); err != nil || n < 1 || n > 100 {
		return "", errNoItem
	}
	return "item " + id, nil
}

func (p slowPool) close()         {}
func (p slowPool) String() string { return "a pool of slow calls" }

// postgres is a real database.
type postgres struct{ pool *pgxpool.Pool }

func (p postgres) item(ctx context.Context, id string) (name string, err error) {
	n, err := strconv.Atoi(id)
	if err != nil || n < 1 || n > 100 {
		return "", errNoItem
	}
	var slept any // pg_sleep stands for a query that is slow by itself
	err = p.pool.QueryRow(ctx, "SELECT name, pg_sleep($2)::text FROM shop_items WHERE id = $1", n, queryTime.Seconds()).Scan(&name, &slept)
	return name, err
}

func (p postgres) close()         { p.pool.Close() }
func (p postgres) String() string { return "PostgreSQL" }
