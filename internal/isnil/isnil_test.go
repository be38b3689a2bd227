package isnil_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/isnil"
)

func TestIs(t *testing.T) {
	for _, v := range []any{nil, error(nil), (*int)(nil), (func())(nil), map[string]int(nil), []int(nil), (chan int)(nil)} {
		require.True(t, isnil.Is(v), "%T", v)
	}
	for _, v := range []any{0, "", struct{}{}, new(int), func() {}, map[string]int{}, []int{}, make(chan int), errors.New("x")} {
		require.False(t, isnil.Is(v), "%T", v)
	}
}
