package proxy

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/limiter"
)

// Clients that each may wait with some requests cannot fill the memory together.
func TestClientsWaitWithinACommonBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := new(builder).shaper(limiter.Shaper{Name: "all.rate", Rate: limiter.Per(1, time.Minute), MaxWait: time.Hour}, "all.rate")
		require.NoError(t, err)
		c.most = 2
		left := make(chan error, 2)
		ctx, leave := context.WithCancel(t.Context())
		for _, client := range []string{"a", "b"} {
			_, err := c.Admit(ctx, spillway.Request{Key: client})
			require.NoError(t, err, "the first passes at once")
			go func() {
				_, err := c.Admit(ctx, spillway.Request{Key: client})
				left <- err
			}()
		}
		synctest.Wait()
		_, err = c.Admit(ctx, spillway.Request{Key: "c"})
		var rej *spillway.Rejection
		require.ErrorAs(t, err, &rej)
		require.Equal(t, "all.rate", rej.Policy)
		require.False(t, rej.OverQuota, "this client is not to blame")
		leave()
		require.ErrorIs(t, <-left, context.Canceled)
		require.ErrorIs(t, <-left, context.Canceled)
		_, err = c.Admit(t.Context(), spillway.Request{Key: "c"})
		require.NoError(t, err)
	})
}
