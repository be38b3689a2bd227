package lock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/cluster"
	"github.com/spillway-go/spillway/cluster/internal/redistest"
	"github.com/spillway-go/spillway/cluster/lock"
)

// A cap on how many requests run at once in all processes together: here the third finds no room.
func ExampleSemaphore() {
	client := redistest.Example()
	defer client.Close()

	exports, err := lock.New(&lock.Options{
		Client:   client,
		Name:     "exports",
		Limit:    2,
		Fallback: cluster.AllowAll, // without Redis, exports run unbounded
	})
	if err != nil {
		panic(err)
	}
	defer exports.Close()
	gate := spillway.New(exports)

	for range 3 {
		permit, err := gate.Enter(context.Background(), spillway.Request{Key: "warehouse"})
		if errors.Is(err, spillway.ErrRejected) {
			fmt.Println(err)
			continue
		}
		defer permit.Done(spillway.Success)
		fmt.Println("exporting")
	}
	// Output:
	// exporting
	// exporting
	// spillway: exports refused: limit reached
}

// One process refills a cache, and the others wait for what it finds.
func ExampleSemaphore_mutex() {
	client := redistest.Example()
	defer client.Close()

	refill, err := lock.New(&lock.Options{Client: client, Name: "refill"})
	if err != nil {
		panic(err)
	}
	defer refill.Close()

	var cache sync.Map // stands for one that all processes share
	price := func(ctx context.Context, article string) (any, error) {
		if v, ok := cache.Load(article); ok {
			return v, nil
		}
		held, err := refill.Acquire(ctx, article)
		if err != nil {
			return nil, err
		}
		defer held.Release()
		if v, ok := cache.Load(article); ok { // somebody was faster
			return v, nil
		}
		v, err := askDatabase(held.Context(), article) // ends when the lease does
		if err == nil {
			cache.Store(article, v)
		}
		return v, err
	}

	var all sync.WaitGroup
	for range 5 {
		all.Go(func() {
			if _, err := price(context.Background(), "tea"); err != nil {
				fmt.Println(err)
			}
		})
	}
	all.Wait()
	// Output: the database is asked for tea
}

func askDatabase(_ context.Context, article string) (int, error) {
	fmt.Println("the database is asked for", article)
	return 7, nil
}

// What is written to remembers the greatest fence, and refuses a holder that was stopped for so long that another has come.
func ExampleLease_Fence() {
	client := redistest.Example()
	defer client.Close()
	m, err := lock.New(&lock.Options{Client: client, Name: "ledger"})
	if err != nil {
		panic(err)
	}
	defer m.Close()

	var greatest int64
	write := func(fence int64, text string) {
		if fence < greatest {
			fmt.Println("refused:", text)
			return
		}
		greatest = fence
		fmt.Println("written:", text)
	}

	first, _ := m.Acquire(context.Background(), "ledger")
	_ = first.Release() // or its lease ended, and it does not know
	second, _ := m.Acquire(context.Background(), "ledger")
	write(second.Fence(), "by the second")
	write(first.Fence(), "by the first, late")
	_ = second.Release()
	// Output:
	// written: by the second
	// refused: by the first, late
}
