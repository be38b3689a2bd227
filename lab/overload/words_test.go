package overload

import (
	"bytes"
	"context"
	"flag"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// requireNarrow checks that a terminal of 80 columns shows the text as it is.
func requireNarrow(t *testing.T, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), 80, line)
	}
	require.NotContains(t, text, "\x1b", "colours are for terminals")
}

func TestGreetingSaysWhatHowLongAndWhatToLookAt(t *testing.T) {
	var out bytes.Buffer
	c := &Config{DefaultGuards: "none,fixed:8"}
	o, err := c.parse([]string{"-live", "127.0.0.1:8081"}, &out)
	require.NoError(t, err)
	work, err := c.work(o.Work)
	require.NoError(t, err)
	r := &runner{config: c, opts: o, work: work, progress: newProgress(&out)}
	r.greet()
	text := strings.Join(strings.Fields(out.String()), " ")
	require.Contains(t, text, "0.5, 0.9, 2, 5, 10 and 0.5 times the load that it can carry, once for each guard: none and fixed:8.")
	require.Contains(t, text, "This takes about "+r.duration().String())
	require.Contains(t, text, "Look at goodput: answers within 500 ms, as a share of the capacity.")
	require.Contains(t, text, "near 100%.")
	require.Contains(t, text, "http://127.0.0.1:8081/")
	requireNarrow(t, out.String())
}

func TestEndIsAPlainSentenceAndThePlaceOfTheReport(t *testing.T) {
	var out bytes.Buffer
	run := example()
	run.CapacityAfter = 101
	writeTable(&out, run)
	newProgress(&out).head("%s", run.lead())
	require.Contains(t, out.String(), "At 5 times the load that it can carry, the server keeps this share of its\ncapacity as useful work: bare 0 %, mine 100 %.\n")
	requireNarrow(t, out.String())
	require.Contains(t, out.String(), "p99 ms", "units")
}

func TestHelp(t *testing.T) {
	for _, about := range []string{"", "mine shows something."} {
		var out bytes.Buffer
		c := &Config{About: about}
		require.ErrorIs(t, c.Run(context.Background(), []string{"-h"}, &out), flag.ErrHelp)
		first, _, _ := strings.Cut(out.String(), " ")
		require.NotEmpty(t, first)
		require.Contains(t, out.String(), " shows ")
		require.Contains(t, out.String(), "  -loads")
		requireNarrow(t, out.String())
	}
}

func TestColoursAreForTerminals(t *testing.T) {
	var out bytes.Buffer
	p := newProgress(&out)
	p.head("title")
	require.Equal(t, "title\n", out.String())

	file, err := os.Create(t.TempDir() + "/out")
	require.NoError(t, err)
	defer file.Close()
	require.False(t, newProgress(file).colours, "a file is no terminal")

	out.Reset()
	p = &progress{out: &out, terminal: true, colours: true}
	g := &guardRun{runner: &runner{capacity: 100, progress: p}, guard: "mine", process: &process{}}
	for want, good := range map[string]int64{green: 500, red: 0} {
		out.Reset()
		done := &tally{}
		done.good.Store(good)
		stop := p.watch(g, Span{Load: 5}, done)
		time.Sleep(10 * time.Millisecond) // a rate is over a time
		stop()
		require.Contains(t, out.String(), "\x1b["+want+"mmine")
	}
}

// A generator that was late in every load makes one note, not one for each.
func TestLateGeneratorIsOneNote(t *testing.T) {
	var out bytes.Buffer
	run := &Run{Results: []Result{{Guard: "none", Load: 2, SendLagP99: 30}, {Guard: "mine", Load: 5, SendLagP99: 70.4}, {Guard: "mine", Load: 2, SendLagP99: 1}}}
	run.warn(newProgress(&out))
	require.Equal(t, []string{"in 2 of 3 loads the generator was more than 20 ms late (p99), and 70 ms at worst (mine at 5x)"}, run.Notes)
	requireNarrow(t, out.String())
	run = &Run{Results: []Result{{SendLagP99: 20}}}
	run.warn(newProgress(&out))
	require.Empty(t, run.Notes)
}
