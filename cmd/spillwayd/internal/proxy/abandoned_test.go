package proxy

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// under runs f as a request whose client can leave, behind l.
func under(t *testing.T, l *calls, f func(r *http.Request)) (leave context.CancelFunc, ended <-chan struct{}) {
	t.Helper()
	client, leave := context.WithCancel(t.Context())
	h := l.outlive(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { f(r) }))
	done := make(chan struct{})
	go func() {
		defer close(done)
		r := httptest.NewRequestWithContext(client, http.MethodGet, "/", http.NoBody)
		h.ServeHTTP(httptest.NewRecorder(), r)
	}()
	return leave, done
}

func TestCallsOutliveTheirClients(t *testing.T) {
	for _, c := range []struct {
		most     time.Duration
		answered bool
		want     time.Duration
	}{
		{10 * time.Second, false, 10 * time.Second},
		{time.Millisecond, false, time.Millisecond},
		{10 * time.Second, true, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := newCalls(c.most)
			leave, ended := under(t, l, func(r *http.Request) {
				if c.answered {
					require.NoError(t, arrived(&http.Response{Request: r, Body: http.NoBody}))
				}
				<-r.Context().Done()
				require.ErrorIs(t, r.Context().Err(), context.Canceled)
			})
			_, other := under(t, l, func(r *http.Request) { // its client stays
				select {
				case <-r.Context().Done():
				case <-time.After(time.Minute):
				}
				require.NoError(t, r.Context().Err())
			})
			time.Sleep(time.Second)
			began := time.Now()
			leave()
			<-ended
			require.InDelta(t, c.want, time.Since(began), float64(40*time.Millisecond))
			<-other
		})
	}
}

func TestCallsKeepTheDeadlineAndTheValuesOfTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		l := newCalls(time.Minute)
		client, cancel := context.WithTimeout(context.WithValue(t.Context(), key{}, 7), time.Second)
		defer cancel()
		h := l.outlive(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			assert.Equal(t, 7, r.Context().Value(key{}))
			<-r.Context().Done()
			assert.ErrorIs(t, r.Context().Err(), context.DeadlineExceeded)
		}))
		began := time.Now()
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(client, http.MethodGet, "/", http.NoBody))
		require.Equal(t, time.Second, time.Since(began))
	})
}

// Without calls there is no timer, and each call leaves its list.
func TestCallsRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newCalls(time.Minute)
		var all []<-chan struct{}
		for i := range 100 {
			_, ended := under(t, l, func(*http.Request) { time.Sleep(time.Duration(i*37%100) * time.Millisecond) })
			all = append(all, ended)
		}
		synctest.Wait()
		require.True(t, l.looking.Load())
		for _, ended := range all {
			<-ended
		}
		time.Sleep(l.every)
		synctest.Wait()
		require.False(t, l.looking.Load())
		for i := range l.lists {
			require.Nil(t, l.lists[i].first)
		}
	})
}
