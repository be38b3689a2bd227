// Package state keeps what the shedder has learnt in a file, so that a restart under load begins with it.
package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spillway-go/spillway/shedder"
)

// Auto is the path that lets [Path] choose one.
const Auto = "auto"

// Path returns the file for a path of the configuration. "off" is none. [Auto] is a file in the folder that systemd gives the
// service, or in the user's folder for caches. Its name follows from the names, which say which proxy it is: its listeners and
// backends.
func Path(path string, names ...string) string {
	switch path {
	case "off":
		return ""
	case Auto:
	default:
		return path
	}
	dir, _, _ := strings.Cut(os.Getenv("STATE_DIRECTORY"), ":")
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return ""
		}
		dir = filepath.Join(cache, "spillwayd")
	}
	h := fnv.New64a()
	for _, name := range names {
		_, _ = fmt.Fprintf(h, "%q", name)
	}
	return filepath.Join(dir, fmt.Sprintf("%016x.json", h.Sum64()))
}

// learnt is the content of the file.
type learnt struct {
	At      time.Time     `json:"at"`
	Rate    float64       `json:"rate_per_second"`
	Latency time.Duration `json:"latency_ns"`
}

const (
	every = time.Second
	old   = 10 * time.Minute // older values say too little
	grain = 0.05             // smaller changes are not worth a write, until half of old has passed
)

// A Keeper writes the file while it runs. The file is replaced at once, so a crash leaves the old one.
type Keeper struct {
	path   string
	shed   *shedder.Shedder
	logger *slog.Logger
	last   learnt
	failed bool
	stop   chan struct{}
	ended  sync.WaitGroup
}

// Keep lets shed resume with the file at path, if it is young enough, and keeps the file up to date until Close. A file that
// cannot be read or written is one line in the log. An empty path keeps nothing.
func Keep(path string, shed *shedder.Shedder, logger *slog.Logger) *Keeper {
	k := &Keeper{path: path, shed: shed, logger: logger, stop: make(chan struct{})}
	if path == "" {
		return k
	}
	if err := k.resume(time.Now()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		logger.Warn("spillwayd: the state cannot be used", slog.String("file", path), slog.Any("error", err))
	}
	k.ended.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case now := <-tick.C:
				k.note(k.save(now))
			case <-k.stop:
				return
			}
		}
	})
	return k
}

// Close ends the Keeper.
func (k *Keeper) Close() {
	close(k.stop)
	k.ended.Wait()
}

func (k *Keeper) resume(now time.Time) error {
	text, err := os.ReadFile(k.path)
	if err != nil {
		return err
	}
	var l learnt
	if err := json.Unmarshal(text, &l); err != nil {
		return err
	}
	if age := now.Sub(l.At); age < 0 || age > old {
		return nil
	}
	if err := k.shed.Resume(l.Rate, l.Latency); err != nil {
		return err
	}
	k.logger.Info("spillwayd: resumed", slog.Float64("rate", l.Rate), slog.Duration("latency", l.Latency), slog.Time("learnt", l.At))
	return nil
}

func (k *Keeper) save(now time.Time) error {
	l := learnt{At: now}
	l.Rate, l.Latency = k.shed.Learnt()
	if l.Rate == 0 || now.Sub(k.last.At) < old/2 && near(l.Rate, k.last.Rate) && near(l.Latency.Seconds(), k.last.Latency.Seconds()) {
		return nil
	}
	text, err := json.Marshal(l)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(k.path), 0o700); err != nil {
		return err
	}
	next := k.path + ".next"
	if err := os.WriteFile(next, append(text, '\n'), 0o600); err != nil {
		return err
	}
	if err := os.Rename(next, k.path); err != nil {
		return err
	}
	k.last = l
	return nil
}

// note logs the first error in a row.
func (k *Keeper) note(err error) {
	if err != nil && !k.failed {
		k.logger.Warn("spillwayd: the state cannot be saved", slog.String("file", k.path), slog.Any("error", err))
	}
	k.failed = err != nil
}

func near(a, b float64) bool { return math.Abs(a-b) <= grain*b }
