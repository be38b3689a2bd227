package overload

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	want := Advice{Level: -1, Reduce: 0.4, Valid: 2 * time.Second, Seq: 81, Src: "k3f9"}
	for _, text := range []string{
		`level=-1, reduce=0.4, valid=2000, seq=81, src="k3f9"`,
		`src="k3f9",seq=81,valid=2000,reduce=0.4,level=-1`,
		" level=-1 ,\treduce=0.400, valid=2000, seq=081, src=\"k3f9\" ",
		`level=-1, reduce=0.4, valid=2000, seq=81, src="k3f9", load=1.7, why=cpu, text="a \"b\" \\", on=?1, off=?0`,
	} {
		got, ok := Parse(text)
		require.True(t, ok, text)
		require.Equal(t, want, got, text)
	}
	require.Equal(t, `level=-1, reduce=0.4, valid=2000, seq=81, src="k3f9"`, want.value())

	for text, want := range map[string]Advice{
		`level=0, reduce=1, valid=999999999999999, seq=0, src="a"`:                {Reduce: 0.95, Valid: 10 * time.Second, Src: "a"},
		`level=-999999999999999, reduce=0, valid=0, seq=999999999999999, src="a"`: {Level: -999999999999999, Seq: 999999999999999, Src: "a"},
		`level=-0, reduce=-0, valid=1, seq=1, src="a"`:                            {Valid: time.Millisecond, Seq: 1, Src: "a"},
	} {
		got, ok := Parse(text)
		require.True(t, ok, text)
		require.Equal(t, want, got, text)
	}
}

func TestParseRefusesAnythingElse(t *testing.T) {
	good := `level=-1, reduce=0.4, valid=2000, seq=81, src="k3f9"`
	for _, text := range []string{
		"", " ", ",", "level", "level=", "=1", good + ",", "," + good, good + ";p=1", good + good, good + " x", good + ", ",
		strings.Replace(good, "level=-1", "level=1.5", 1), strings.Replace(good, "level=-1", "level=--1", 1),
		strings.Replace(good, "level=-1", "level=-", 1), strings.Replace(good, "level=-1", "level=+1", 1),
		strings.Replace(good, "level=-1", "level=0x1", 1), strings.Replace(good, "level=-1", "level=1e3", 1),
		strings.Replace(good, "level=-1", "level=1000000000000000", 1), strings.Replace(good, "level=-1", `level="1"`, 1),
		strings.Replace(good, "level=-1", "Level=-1", 1), strings.Replace(good, "level=-1", "level = -1", 1),
		strings.Replace(good, "level=-1, ", "", 1), strings.Replace(good, "level=-1", "level=-1, level=-1", 1),
		strings.Replace(good, "0.4", "NaN", 1), strings.Replace(good, "0.4", "-0.1", 1), strings.Replace(good, "0.4", "1.001", 1),
		strings.Replace(good, "0.4", "0.4000", 1), strings.Replace(good, "0.4", ".4", 1), strings.Replace(good, "0.4", "0.", 1),
		strings.Replace(good, "0.4", "0.4.1", 1), strings.Replace(good, "0.4", "0,4", 1), strings.Replace(good, "0.4", "?1", 1),
		strings.Replace(good, "2000", "-1", 1), strings.Replace(good, "2000", "2.5", 1), strings.Replace(good, "81", "-1", 1),
		strings.Replace(good, `"k3f9"`, "k3f9", 1), strings.Replace(good, `"k3f9"`, `""`, 1), strings.Replace(good, `"k3f9"`, `"k`, 1),
		strings.Replace(good, `"k3f9"`, `"k\"9"`, 1), strings.Replace(good, `"k3f9"`, "\"k\x00\"", 1), strings.Replace(good, `"k3f9"`, `"ü"`, 1),
		strings.Replace(good, "k3f9", strings.Repeat("k", 33), 1), good + `, x="` + strings.Repeat("k", 256) + `"`,
		good + ", x", good + ", x=(1 2)", good + ", x=:aGk=:", good + ", x=?2", good + ", x=@1", good + "\r\nx: y",
	} {
		got, ok := Parse(text)
		require.False(t, ok, "%q", text)
		require.Zero(t, got, "%q", text)
	}
}

// Every share is written so that it can be read.
func TestSharesHaveThreeDecimals(t *testing.T) {
	for i := range 9501 {
		a := Advice{Reduce: float64(i) * 0.0001, Src: "x"}
		got, ok := Parse(a.value())
		require.True(t, ok, "%s", a.value())
		require.InDelta(t, a.Reduce, got.Reduce, 0.0006)
	}
}

// Any text is either refused, or gives an advice within the bounds, which survives being written and read.
func FuzzParse(f *testing.F) {
	f.Add(`level=-1, reduce=0.4, valid=2000, seq=81, src="k3f9"`)
	f.Add(`level=0, reduce=1, valid=99999, seq=81, src="k3f9", load=1.7, a=?1, b=tok, c="\""`)
	f.Fuzz(func(t *testing.T, text string) {
		a, ok := Parse(text)
		if !ok {
			require.Zero(t, a)
			return
		}
		require.True(t, a.Reduce >= 0 && a.Reduce <= maxReduce && a.Valid >= 0 && a.Valid <= maxValid && a.Seq >= 0, "%+v", a)
		require.LessOrEqual(t, len(a.Src), maxSrc)
		again, ok := Parse(a.value())
		require.True(t, ok)
		require.InDelta(t, a.Reduce, again.Reduce, 0.0005)
		again.Reduce = a.Reduce
		require.Equal(t, a, again)
	})
}

func TestParseAllocatesNothing(t *testing.T) {
	text := `level=-1, reduce=0.4, valid=2000, seq=81, src="k3f9"`
	require.Zero(t, testing.AllocsPerRun(100, func() { Parse(text) }))
}
