package rules_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/rules"
)

// A store is a source of a test.
type store struct {
	mu   sync.Mutex
	data string
	err  error
}

func (s *store) set(data string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.data, s.err = data, err
}

func (s *store) read(context.Context) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil && s.err.Error() == "panic" {
		panic("ouch")
	}
	return []byte(s.data), s.err
}

func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlain()
		s := newSet(t, map[string]rules.Target{"p": rules.Of(p)})
		from := &store{data: `{"rules": {"p": {"A": 5}}}`}
		var out bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&out, nil))
		w, err := s.Follow(from.read, &rules.Options{Name: "etcd", Logger: logger})
		require.NoError(t, err)
		require.Equal(t, 5, p.Options().A, "Follow returns after the first read")
		lines := func() int {
			synctest.Wait()
			n := strings.Count(out.String(), "\n")
			out.Reset()
			return n
		}
		require.Equal(t, 1, lines())
		_, err = s.Follow(from.read, nil)
		require.EqualError(t, err, "rules: Follow: the Set follows a source already: close that Watch first")

		time.Sleep(10500 * time.Millisecond) // from here on between two reads
		require.Zero(t, lines(), "the same content")
		require.LessOrEqual(t, s.Stats().Age, time.Second)

		from.set(`{"rules": {"p": {"A": 6}}`, nil)
		time.Sleep(10 * time.Second)
		require.Equal(t, 1, lines(), "one line for each bad document")
		require.Equal(t, 5, p.Options().A)
		require.ErrorContains(t, s.Stats().Err, "unexpected end")
		require.InDelta(t, 10, s.Stats().Age.Seconds(), 1)
		require.EqualValues(t, 1, s.Stats().Invalid)
		require.Error(t, w.Refresh(t.Context()))
		require.EqualValues(t, 2, s.Stats().Invalid)
		lines()

		for _, why := range []string{"down", "panic"} {
			from.set("", errors.New(why))
			time.Sleep(5 * time.Second)
		}
		require.Equal(t, 1, lines(), "one line for the outage")
		require.EqualValues(t, 10, s.Stats().Unreadable)
		require.ErrorContains(t, s.Stats().Err, "rules: the source panicked: ouch")

		from.set(`{"rules": {"p": {"A": 5}}}`, nil)
		time.Sleep(time.Second)
		require.Equal(t, 1, lines(), "readable again; the document is the one in force")
		require.NoError(t, s.Stats().Err)
		require.Equal(t, time.Second/2, s.Stats().Age)
		require.Equal(t, 1, s.Stats().Version)

		require.NoError(t, s.Pin(0))
		from.set(`{"rules": {"p": {"A": 7}}}`, nil)
		time.Sleep(time.Second)
		require.Equal(t, 1, p.Options().A)
		require.EqualValues(t, 1, s.Stats().Held)
		require.NoError(t, s.Unpin())
		require.Equal(t, 7, p.Options().A)

		require.NoError(t, w.Close())
		require.NoError(t, w.Close())
		require.EqualValues(t, -1, s.Stats().Age)
		from.set(`{"rules": {"p": {"A": 8}}}`, nil)
		time.Sleep(2 * time.Second)
		require.Equal(t, 7, p.Options().A)
		w, err = s.Follow(from.read, nil)
		require.NoError(t, err)
		require.Equal(t, 8, p.Options().A)
		require.NoError(t, w.Close())
	})
}

func TestFollowRefusesBadOptions(t *testing.T) {
	s := newSet(t, nil)
	from := new(store)
	for want, o := range map[string]rules.Options{
		"rules: Follow: Every must be at least 10ms, got 9ms":  {Every: 9 * time.Millisecond},
		"rules: Follow: Timeout must not be negative, got -1s": {Timeout: -time.Second},
	} {
		_, err := s.Follow(from.read, &o)
		require.EqualError(t, err, want)
	}
	_, err := s.Follow(nil, nil)
	require.EqualError(t, err, "rules: Follow: source must be set, got nil")
}

// A source that hangs ends with Timeout, and with Close.
func TestSourceThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSet(t, map[string]rules.Target{"p": rules.Of(newPlain())})
		hang := func(ctx context.Context) ([]byte, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		begin := time.Now()
		w, err := s.Follow(hang, &rules.Options{Timeout: 3 * time.Second})
		require.NoError(t, err)
		require.Equal(t, 3*time.Second, time.Since(begin))
		require.ErrorIs(t, s.Stats().Err, context.DeadlineExceeded)
		time.Sleep(1500 * time.Millisecond) // it reads
		begin = time.Now()
		require.NoError(t, w.Close())
		require.Zero(t, time.Since(begin))
	})
}

// Close while the source of Refresh hangs, and Refresh after Close, are harmless.
func TestRefreshGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSet(t, map[string]rules.Target{"p": rules.Of(newPlain())})
		from := &store{data: string(document(3))}
		w, err := s.Follow(from.read, nil)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		from.set("", context.Canceled)
		require.ErrorIs(t, w.Refresh(ctx), context.Canceled)
		require.NoError(t, s.Stats().Err, "it says nothing of the source")
		require.NoError(t, w.Close())
	})
}
