package policytest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/policytest"
)

// A test of a fallback needs a gate that refuses.
func ExampleRefuse() {
	price := func(gate *spillway.Gate) string {
		err := spillway.Do(context.Background(), gate, spillway.Request{}, func(context.Context) error { return nil })
		if errors.Is(err, spillway.ErrRejected) {
			return "yesterday's price: " + spillway.RejectionOf(err).Reason
		}
		return "today's price"
	}
	fmt.Println(price(spillway.New()))
	fmt.Println(price(spillway.New(policytest.Refuse(spillway.Rejection{Reason: "full"}))))
	// Output:
	// today's price
	// yesterday's price: full
}

func TestRefuse(t *testing.T) {
	r := spillway.Rejection{Reason: "full", RetryAfter: time.Second, OverQuota: true}
	_, err := spillway.New(policytest.Refuse(r)).Enter(context.Background(), spillway.Request{})
	r.Policy = "policytest"
	require.Equal(t, &r, spillway.RejectionOf(err))
	policytest.Run(t, func() spillway.Policy { return policytest.Refuse(r) }, nil)
}
