package rules_test

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/rules"
)

// A file gives two limits their numbers while they run.
func Example() {
	api := spillway.Must(limiter.New(limiter.Concurrency{Limit: 50}))
	tenants := spillway.Must(limiter.NewKeyed(limiter.Bucket{Rate: limiter.Per(10, time.Second)}, nil))
	set := spillway.Must(rules.New(map[string]rules.Target{"api": rules.Of(api), "tenants": rules.Of(tenants)}))

	folder, _ := os.MkdirTemp("", "rules")
	defer os.RemoveAll(folder)
	path := filepath.Join(folder, "rules.json")
	_ = os.WriteFile(path, []byte(`{"rules": {"tenants": {"Rate": "100/s", "Burst": 200}}, "note": "sale"}`), 0o600)

	w, err := set.Follow(rules.File(path), &rules.Options{Name: path})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer w.Close()
	fmt.Println(tenants.Rule())
	fmt.Println(set.Versions()[1].Changes)
	// Output:
	// {100 per 1s 200 token bucket}
	// [tenants.Burst: 10 → 200 tenants.Rate: 10/s → 100/s]
}

// A document is applied as a whole, or not at all.
func ExampleSet_Apply() {
	api := spillway.Must(limiter.New(limiter.Concurrency{Limit: 50}))
	db := spillway.Must(limiter.New(limiter.Concurrency{Limit: 10}))
	set := spillway.Must(rules.New(map[string]rules.Target{"api": rules.Of(api), "db": rules.Of(db)}))

	fmt.Println(set.Apply([]byte(`{"rules": {"api": {"Limit": 80}, "db": {"Limit": -1}}}`)))
	fmt.Println(api.PeekAt(time.Now()).Limit)
	fmt.Println(set.Apply([]byte(`{"rules": {"api": {"Limit": 80}}}`)))
	fmt.Println(api.PeekAt(time.Now()).Limit)
	// Output:
	// rules: db: limiter: Concurrency: Limit must be at least 1, got -1
	// 50
	// <nil>
	// 80
}

// No document takes the limit below 20 or above 500.
func ExampleTarget_Between() {
	api := spillway.Must(limiter.New(limiter.Concurrency{Limit: 50}))
	bounded := rules.Of(api).Between(limiter.Concurrency{Limit: 20}, limiter.Concurrency{Limit: 500})
	set := spillway.Must(rules.New(map[string]rules.Target{"api": bounded}))
	fmt.Println(set.Apply([]byte(`{"rules": {"api": {"Limit": 5}}}`)))
	// Output:
	// rules: api.Limit must be in 20..500, got 5
}

// Pin goes back to an earlier version and stays there.
func ExampleSet_Pin() {
	api := spillway.Must(limiter.New(limiter.Concurrency{Limit: 50}))
	set := spillway.Must(rules.New(map[string]rules.Target{"api": rules.Of(api)}))
	_ = set.Apply([]byte(`{"rules": {"api": {"Limit": 60}}}`))
	_ = set.Apply([]byte(`{"rules": {"api": {"Limit": 6}}}`))
	_ = set.Pin(1)
	for _, v := range set.Versions() {
		fmt.Println(v.Number, v.Source, v.Changes)
	}
	// Output:
	// 0 program []
	// 1 apply [api.Limit: 50 → 60]
	// 2 apply [api.Limit: 60 → 6]
	// 3 pin 1 [api.Limit: 6 → 60]
}
