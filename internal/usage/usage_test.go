package usage

import (
	"bytes"
	"flag"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWrap(t *testing.T) {
	require.Empty(t, Wrap("", "  "))
	require.Equal(t, "  one two\n\n  three", Wrap("one  two\n\nthree", "  "))
	long := strings.Repeat("word ", 40)
	for line := range strings.Lines(Wrap(long, "      ")) {
		require.LessOrEqual(t, len(strings.TrimSuffix(line, "\n")), columns)
		require.True(t, strings.HasPrefix(line, "      word"))
	}
	require.Equal(t, strings.Fields(long), strings.Fields(Wrap(long, "  ")), "no word is lost")
	wide := strings.Repeat("x", columns+10)
	require.Equal(t, "a\n"+wide+"\nb", Wrap("a "+wide+" b", ""), "a word is not broken")
	require.Len(t, Wrap(strings.Repeat("é", 30)+" "+strings.Repeat("é", 49), ""), 79*2+1, "columns are runes")
}

func TestHelp(t *testing.T) {
	var out bytes.Buffer
	flags := New("show", "show shows "+strings.Repeat("many things ", 10), &out)
	flags.Int("n", 3, "how `many`")
	flags.Bool("quiet", false, "print nothing")
	require.ErrorIs(t, flags.Parse([]string{"-h"}), flag.ErrHelp)
	text := out.String()
	require.True(t, strings.HasPrefix(text, "show shows many things"), text)
	require.Contains(t, text, "things\n\nFlags:\n  -n many\n      how many (default 3)\n  -quiet\n      print nothing\n")
	for line := range strings.Lines(text) {
		require.LessOrEqual(t, len(line), columns+1)
	}

	out.Reset()
	require.ErrorIs(t, New("show", "nothing to set", &out).Parse([]string{"-h"}), flag.ErrHelp)
	require.Equal(t, "nothing to set\n", out.String())
	require.Error(t, New("show", "", &out).Parse([]string{"-x"}))
}
