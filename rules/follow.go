package rules

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// A Source reads the present document. It returns when ctx ends at the latest. Its errors, and documents that are not valid,
// leave the targets as they are. A [Watch] calls it from one goroutine at a time.
//
// [File] and [HTTP] are sources, and so is any function that reads a key of a store.
type Source func(ctx context.Context) ([]byte, error)

// Options tune a [Watch]. The zero Options are the defaults.
type Options struct {
	// Name is the name of the source in versions, such as the path of the file. If Name is empty, it is "source".
	Name string
	// Decode turns what the source returns into JSON, such as the function JSON of package rules/yaml. Its error refuses the
	// document. If Decode is nil, the source returns JSON.
	Decode func(document []byte) ([]byte, error)
	// Every is the time between two reads, at least 10 ms. If Every is 0, it is one second.
	Every time.Duration
	// Timeout bounds one read. If Timeout is 0, it is 5 s.
	Timeout time.Duration
	// Logger gets one line for each document that is applied, refused or held, one when the source cannot be read, and one
	// when it can be read again. If Logger is nil, it is [slog.Default].
	Logger *slog.Logger
}

// A Watch keeps a [Set] at the document of a [Source]. It is made by [Set.Follow] and owns one goroutine until [Watch.Close].
type Watch struct {
	set    *Set
	source Source
	o      Options

	close context.CancelFunc
	ended chan struct{}

	mu sync.Mutex // held while the source is read
	// Guarded by mu.
	seen    []byte // the last document; nil before the first
	verdict error  // on it
	down    bool   // the last read failed
}

// Follow reads the source, applies its document, and goes on to read it until [Watch.Close]. It returns after the first read,
// so that the first requests already meet the right numbers. If that fails, the built values stay, and Follow returns no error:
// [Stats.Err] has it. The error of Follow names the invalid field, or says that the Set follows another source.
func (s *Set) Follow(source Source, o *Options) (*Watch, error) {
	w := &Watch{set: s, source: source, ended: make(chan struct{})}
	if o != nil {
		w.o = *o
	}
	w.o.Name = cmp.Or(w.o.Name, "source")
	w.o.Every = cmp.Or(w.o.Every, time.Second)
	w.o.Timeout = cmp.Or(w.o.Timeout, 5*time.Second)
	switch {
	case source == nil:
		return nil, errors.New("rules: Follow: source must be set, got nil")
	case w.o.Every < 10*time.Millisecond:
		return nil, fmt.Errorf("rules: Follow: Every must be at least 10ms, got %v", w.o.Every)
	case w.o.Timeout < 0:
		return nil, fmt.Errorf("rules: Follow: Timeout must not be negative, got %v", w.o.Timeout)
	}
	s.mu.Lock()
	if s.watch != nil {
		s.mu.Unlock()
		return nil, errors.New("rules: Follow: the Set follows a source already: close that Watch first")
	}
	s.watch, s.logger, s.good = w, w.o.Logger, time.Now()
	s.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	w.close = cancel
	_ = w.look(ctx, false)
	go w.run(ctx)
	return w, nil
}

// Close ends the goroutine and waits for it. The numbers stay as they are. Close may be called more than once, and returns nil.
func (w *Watch) Close() error {
	w.close()
	<-w.ended
	return nil
}

func (w *Watch) run(ctx context.Context) {
	defer func() {
		w.set.mu.Lock()
		defer w.set.mu.Unlock()
		w.set.watch = nil
		close(w.ended)
	}()
	ticker := time.NewTicker(w.o.Every)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			_ = w.look(ctx, false)
		case <-ctx.Done():
			return
		}
	}
}

// Refresh reads the source now, for example after SIGHUP, and returns why it cannot be read or why its document is refused.
// It tries a refused document again, which the goroutine does only when the content changes.
func (w *Watch) Refresh(ctx context.Context) error { return w.look(ctx, true) }

// look reads the source, and offers its document to the Set if the content has changed, or if it is asked to try again.
func (w *Watch) look(ctx context.Context, again bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	data, err := w.read(ctx)
	s := w.set
	switch {
	case err != nil && ctx.Err() != nil: // closed, or the caller of Refresh gave up
		return err
	case err != nil:
		s.mu.Lock()
		s.stats.Unreadable++
		s.stats.Err = err
		s.mu.Unlock()
		if !w.down {
			w.logger().Warn("rules: the source cannot be read, the last good document stays", slog.String("source", w.o.Name), slog.Any("error", err))
		}
		w.down = true
		return err
	}
	if w.down {
		w.logger().Info("rules: the source can be read again", slog.String("source", w.o.Name))
	}
	w.down = false
	if w.seen == nil || !bytes.Equal(data, w.seen) || again && w.verdict != nil {
		w.seen = append([]byte{}, data...)
		w.verdict = w.offer(w.seen)
	}
	s.mu.Lock()
	s.stats.Err = w.verdict
	if w.verdict == nil {
		s.good = time.Now()
	}
	s.mu.Unlock()
	return w.verdict
}

func (w *Watch) logger() *slog.Logger { return cmp.Or(w.o.Logger, slog.Default()) }

// offer decodes a document and offers it to the Set.
func (w *Watch) offer(data []byte) error {
	s := w.set
	s.changing.Lock()
	defer s.changing.Unlock()
	document, err := w.decode(data)
	if err != nil {
		s.record(Version{Source: w.o.Name, Document: data}, err, s.Stats().Pinned)
		return err
	}
	return s.offer(document, w.o.Name)
}

func (w *Watch) decode(data []byte) (document []byte, err error) {
	if w.o.Decode == nil {
		return data, nil
	}
	defer caught(&err, "Decode")
	return w.o.Decode(data)
}

// read calls the source.
func (w *Watch) read(ctx context.Context) (data []byte, err error) {
	defer caught(&err, "the source")
	ctx, cancel := context.WithTimeout(ctx, w.o.Timeout)
	defer cancel()
	return w.source(ctx)
}

// caught turns a panic of user code into an error.
func caught(err *error, who string) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("rules: %s panicked: %v", who, r)
	}
}
