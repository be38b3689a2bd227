package httpgate

import (
	"bufio"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// countWrites counts the writes that reach it.
type countWrites struct{ n int }

func (w *countWrites) Write(p []byte) (int, error) {
	w.n++
	return len(p), nil
}

// An exchange knows which Write sends something to the client: as a bufio.Writer of the same size.
func TestFillsAsABufferDoes(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 0))
		sink := &countWrites{}
		model := bufio.NewWriterSize(sink, firstBuffer)
		x := &exchange{}
		for range 1000 {
			n := []int{0, 1, rng.IntN(firstBuffer), firstBuffer - 1, firstBuffer, firstBuffer + 1, model.Available(), model.Available() + 1, rng.IntN(5 * firstBuffer)}[rng.IntN(9)]
			before := sink.n
			_, err := model.Write(make([]byte, n))
			require.NoError(t, err)
			require.Equal(t, sink.n > before, x.fills(n), "%d bytes", n)
			require.Equal(t, model.Buffered(), x.buffered)
		}
	}
}
