package enum

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTextComesBack(t *testing.T) {
	type light uint8
	const kind = "road: Light"
	names := []string{"red", "green"}
	for i, name := range names {
		text, err := Marshal(kind, names, light(i))
		require.NoError(t, err)
		require.Equal(t, name, string(text))
		require.Equal(t, name, String(kind, names, light(i)))
		back := light(9)
		require.NoError(t, Unmarshal(kind, names, &back, text))
		require.Equal(t, light(i), back)
	}
	require.Equal(t, "light(2)", String(kind, names, light(2)))
	_, err := Marshal(kind, names, light(2))
	require.EqualError(t, err, "road: Light: must be one of the named values, got 2")
	v := light(1)
	require.EqualError(t, Unmarshal(kind, names, &v, []byte("Red")), `road: Light: must be one of red, green, got "Red"`)
	require.Equal(t, light(1), v)
}
