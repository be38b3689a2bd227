package cluster

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// Rules returns a source for rules.Set.Follow that reads the document at a key of Redis. A missing key is an error, so the last
// good document stays. Write the document with SET, which replaces it at once.
//
// The function returns when its context ends, and is for one caller at a time, like every source. A call that Redis has not
// answered then continues in one goroutine, until the client's own timeouts, and the next call of the function takes its answer.
func Rules(client redis.UniversalClient, key string) func(ctx context.Context) ([]byte, error) {
	type answer struct {
		document []byte
		err      error
	}
	var pending chan answer // of a call that is under way
	return func(ctx context.Context) ([]byte, error) {
		if pending == nil {
			call := make(chan answer, 1)
			pending = call
			go func() {
				document, err := client.Get(context.WithoutCancel(ctx), key).Bytes()
				call <- answer{document, err}
			}()
		}
		select {
		case a := <-pending:
			pending = nil
			if errors.Is(a.err, redis.Nil) {
				a.err = fmt.Errorf("cluster: Redis has no key %q", key)
			}
			return a.document, a.err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
