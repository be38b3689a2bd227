package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

const (
	connections = 32
	rounds      = 5
)

// measureCost fills in the figures of the cost.
func (r *report) measureCost(daemon, dir string, requests int) error {
	backend, err := spawnSelf("fast")
	if err != nil {
		return err
	}
	defer backend.end()
	file := filepath.Join(dir, "refuse.yaml")
	text := fmt.Sprintf("listen: [{address: '127.0.0.1:0'}]\nadmin: {address: 'off'}\nbackend: {urls: [%s]}\n"+
		"routes: [{match: /, name: all, rate: {rate: 1/h, per: all}}]\n", backend.url)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	starts := []func() (*child, error){
		func() (*child, error) { return spawnSelf("plain", backend.url) },
		func() (*child, error) {
			return spawn(daemon, "-to", backend.url, "-listen", "127.0.0.1:0", "-admin", "off")
		},
		func() (*child, error) { return spawn(daemon, "-config", file) },
	}
	got := make([][]float64, len(starts))
	for range rounds { // in turns, because the machine is not equally fast all the time
		for i, start := range starts {
			proxy, err := start()
			if err != nil {
				return err
			}
			failed := closedLoop(proxy.url, requests/rounds)
			got[i] = append(got[i], float64(proxy.end().Microseconds())/float64(requests/rounds))
			if failed > 0 {
				return fmt.Errorf("%d of %d requests got no answer", failed, requests/rounds)
			}
		}
	}
	for i, to := range []*float64{&r.PlainCPU, &r.ProxyCPU, &r.RefusalCPU} {
		slices.Sort(got[i])
		*to = got[i][rounds/2]
	}
	r.ProxyRatio, r.RefusalRatio = r.ProxyCPU/r.PlainCPU, r.RefusalCPU/r.ProxyCPU
	return nil
}

// closedLoop sends requests over all connections and returns how many got no answer.
func closedLoop(url string, requests int) (failed int) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: connections}}
	var (
		calls sync.WaitGroup
		mu    sync.Mutex
	)
	for range connections {
		calls.Go(func() {
			for range requests / connections {
				if _, err := get(context.Background(), client, url); err != nil {
					mu.Lock()
					failed++
					mu.Unlock()
				}
			}
		})
	}
	calls.Wait()
	return failed
}

func get(ctx context.Context, client *http.Client, url string) (status int, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, err
	}
	res, err := client.Do(r)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, res.Body)
	return res.StatusCode, err
}

const (
	patience = 500 * time.Millisecond
	settle   = 3 * time.Second
)

// overload sends load times the capacity in even steps.
func overload(daemon, guard, backend string, load float64, measured time.Duration) (result, error) {
	out := result{Guard: guard, Backend: backend, Load: load}
	start := func() (*child, error) { return spawnSelf("pool") }
	if backend == "python" {
		start = func() (*child, error) { return spawn("python3", "-c", python) }
	}
	b, err := start()
	if err != nil {
		return out, err
	}
	defer b.end()
	url := b.url
	if guard == "spillwayd" {
		proxy, err := spawn(daemon, "-to", b.url, "-listen", "127.0.0.1:0", "-admin", "off")
		if err != nil {
			return out, err
		}
		defer proxy.end()
		url = proxy.url
	}
	var (
		calls sync.WaitGroup
		mu    sync.Mutex
		took  []time.Duration
	)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000}}
	began := time.Now()
	for sent := 0; time.Since(began) < settle+measured; {
		now := time.Since(began)
		for ; float64(sent) < load*capacity*now.Seconds(); sent++ {
			calls.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				defer cancel()
				at := time.Now()
				status, err := get(ctx, client, url)
				if err == nil && status == http.StatusOK && now >= settle {
					mu.Lock()
					defer mu.Unlock()
					took = append(took, time.Since(at))
				}
			})
		}
		time.Sleep(2 * time.Millisecond)
	}
	calls.Wait()
	out.Goodput = float64(len(took)) / (capacity * measured.Seconds())
	if len(took) > 0 {
		slices.Sort(took)
		out.P99 = float64(took[len(took)*99/100].Microseconds()) / 1000
	}
	return out, nil
}
