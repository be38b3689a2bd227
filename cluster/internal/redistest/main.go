package redistest

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/redis/go-redis/v9"
)

// Main runs the child that this process is meant to be, or the tests. TestMain of a package that uses [Spawn] or
// [Example] calls it. Without redis-server it leaves out the examples, and says so.
//
//	func TestMain(m *testing.M) { redistest.Main(m, map[string]func() error{"node": node}) }
func Main(m *testing.M, children map[string]func() error) {
	if name := os.Getenv(childEnv); name != "" {
		os.Exit(runChild(name, children))
	}
	os.Exit(runTests(m))
}

func runChild(name string, children map[string]func() error) int {
	run, ok := children[name]
	if !ok {
		fmt.Fprintf(os.Stderr, "redistest: Main knows no child %q\n", name)
		return 2
	}
	if err := run(); err != nil {
		fmt.Fprintf(os.Stderr, "redistest: child %s: %v\n", name, err)
		return 1
	}
	return 0
}

func runTests(m *testing.M) int {
	if !Found() {
		fmt.Fprintln(os.Stderr, Missing+": no example is run")
		_ = flag.Set("test.skip", "^Example") // which cannot skip by themselves
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "redistest")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	s, err := open(nil, dir, nil)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer s.close()
	if err := os.Setenv(exampleEnv, s.addr); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// Example returns a connected client of the server that [Main] has started for the examples of a package: on a busy
// machine the first call may take longer than calls may. The caller closes it.
func Example() *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: os.Getenv(exampleEnv)})
	_ = c.Ping(context.Background())
	return c
}

// Orders reads the orders of [Spawn] in a child.
func Orders(into any) error { return json.Unmarshal([]byte(os.Getenv(ordersEnv)), into) }
