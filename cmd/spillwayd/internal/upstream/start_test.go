package upstream

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A slowBackend answers each request after the time took. It notes the most requests that it had at once.
type slowBackend struct {
	took      time.Duration
	now, most atomic.Int64
	served    atomic.Int64
	err       error
}

func (b *slowBackend) send(*http.Request) (*http.Response, error) {
	n := b.now.Add(1)
	for most := b.most.Load(); n > most && !b.most.CompareAndSwap(most, n); most = b.most.Load() {
	}
	time.Sleep(b.took)
	b.now.Add(-1)
	b.served.Add(1)
	if b.err != nil {
		return nil, b.err
	}
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

// sendAll sends n requests at once, whose clients wait for so long.
func sendAll(t *testing.T, rt roundTripper, n int, patience time.Duration) {
	t.Helper()
	var calls sync.WaitGroup
	for range n {
		calls.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", http.NoBody)
			if res, err := rt(r); err == nil {
				assert.NoError(t, res.Body.Close())
			}
		})
	}
	calls.Wait()
}

func TestStartDoublesWithTheAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, b := new(start), &slowBackend{took: 10 * time.Millisecond}
		began := time.Now()
		sendAll(t, s.around(b.send), 3000, time.Hour)
		require.EqualValues(t, 3000, b.served.Load())
		require.Less(t, time.Since(began), 100*time.Millisecond, "a flood that the backend can carry waits for some rounds")
		require.True(t, s.over)
		require.Zero(t, s.sent)

		b.most.Store(0)
		sendAll(t, s.around(b.send), 3000, time.Hour)
		require.EqualValues(t, 3000, b.most.Load(), "no bound any more")
	})
}

func TestStartKeepsAFloodFromABackendThatHasNotAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, b := new(start), &slowBackend{took: 700 * time.Millisecond}
		sendAll(t, s.around(b.send), 600, 500*time.Millisecond)
		require.EqualValues(t, startBound, b.served.Load(), "the clients of the others left before")
		require.Zero(t, s.waiting.Len())
		require.Zero(t, s.sent)
	})
}

func TestStartRefusesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, b := new(start), &slowBackend{took: 10 * time.Second}
		began := time.Now()
		sendAll(t, s.around(b.send), 600, time.Hour)
		require.EqualValues(t, 600, b.served.Load())
		require.Equal(t, b.took+startWait, time.Since(began), "a backend that is slow with much room gets all of them")
		require.Zero(t, s.sent)
	})
}

func TestStartGrowsOnlyByAnswersAndWhereItIsNeeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, b := new(start), &slowBackend{took: time.Millisecond, err: errors.New("down")}
		sendAll(t, s.around(b.send), 200, time.Hour)
		require.Equal(t, startBound, s.bound(), "errors are no answers")
		b.err = nil
		for range 100 {
			sendAll(t, s.around(b.send), startBound, time.Hour)
		}
		require.LessOrEqual(t, s.bound(), 2*startBound, "nothing waits")
		require.Zero(t, s.sent)
	})
}

// The context of a call outlives its client, but a request that was not sent has no reason to.
func TestStartHearsTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &start{sent: startBound}
		client, leave := context.WithCancel(t.Context())
		r := httptest.NewRequestWithContext(context.WithValue(t.Context(), clientKey{}, client), http.MethodGet, "/", http.NoBody)
		time.AfterFunc(time.Millisecond, leave)
		began := time.Now()
		_, err := s.around(func(*http.Request) (*http.Response, error) { panic("sent") })(r)
		require.ErrorIs(t, err, errLeft)
		require.Equal(t, time.Millisecond, time.Since(began))
		require.Equal(t, startBound, s.sent)
	})
}
