package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/report"
)

func TestReplaceKeepsWhatStandsAround(t *testing.T) {
	page := []byte("before\n<!-- a -->\nold\n<!-- end of a -->\nbetween\n<!-- b -->\n<!-- end of b -->\nafter\n")
	page, err := replace(page, "a", "new\n")
	require.NoError(t, err)
	page, err = replace(page, "b", "more\n")
	require.NoError(t, err)
	require.Equal(t, "before\n<!-- a -->\n\nnew\n\n<!-- end of a -->\nbetween\n<!-- b -->\n\nmore\n\n<!-- end of b -->\nafter\n", string(page))
	again, err := replace(page, "a", "new\n")
	require.NoError(t, err)
	require.Equal(t, string(page), string(again), "twice is once")

	for _, text := range []string{"", "<!-- a -->\n", "<!-- end of a -->\n<!-- a -->\n"} {
		_, err := replace([]byte(text), "a", "new\n")
		require.ErrorContains(t, err, "has no mark")
	}
}

func TestTheRealPageHasAllMarks(t *testing.T) {
	text, err := os.ReadFile("../../docs/benchmarks.md")
	require.NoError(t, err)
	for _, name := range names() {
		_, err := replace(text, name, "x")
		require.NoError(t, err)
	}
}

const overloadJSON = `{"works": [{"work": "cpu", "work_about": "two ms", "capacity_rps": 200}], "results": [
	{"work": "cpu", "guard": "fixed:16", "load": 5, "goodput": 0.9, "of_best_fixed": 0.9},
	{"work": "cpu", "guard": "fixed:4", "load": 5, "goodput": 1, "of_best_fixed": 1, "p99_ms": 80},
	{"work": "cpu", "guard": "aegis", "load": 5, "goodput": 0.7, "of_best_fixed": 0.7, "refused_p99_ms": 60},
	{"work": "cpu", "guard": "spillway", "load": 5, "goodput": 0.98, "of_best_fixed": 0.98, "shed": 0.8}]}`

const playedJSON = `{"results": [{"policy": "vegas", "scenario": "pool", "load": 2, "goodput": 0.955, "first5s": null, "wrongly_refused": 0.01}]}`

// figures fills a folder with figures of every part, and a page with the marks.
func figures(t *testing.T) (out, kept string) {
	t.Helper()
	out, kept = t.TempDir(), t.TempDir()
	var page strings.Builder
	for _, name := range names() {
		page.WriteString("<!-- " + name + " -->\n<!-- end of " + name + " -->\n")
	}
	for name, text := range map[string]string{
		filepath.Join(out, "benchmarks.md"):        page.String(),
		filepath.Join(kept, "micro.txt"):           "go1.26, 11 passes\n\n| kind   | ns   |\n|---     |---:  |\n| bucket | 12.3 |\n",
		filepath.Join(kept, "overload-cpu-5.json"): overloadJSON,
		filepath.Join(kept, "overload-cpu-below.json"): `{"results": [
			{"work": "cpu", "guard": "spillway", "load": 0.9, "shed": 0.015}, {"work": "cpu", "guard": "none", "load": 0.9}]}`,
		filepath.Join(kept, "overload-none.json"): `{"results": [{"work": "cpu", "guard": "none", "load": 5, "goodput": 0}]}`,
		filepath.Join(kept, "shapes-1.json"): `{"shape": "ramp", "results": [
			{"guard": "aegis", "load": 5, "goodput_all": 0.5, "p99_all_ms": 70}, {"guard": "spillway", "load": 5, "goodput_all": 0.9}]}`,
		filepath.Join(kept, "shapes-2.json"): `{"shape": "storm", "results": [
			{"guard": "spillway", "load": 3, "goodput_all": 0.8}, {"guard": "spillway", "load": 0.8, "goodput_all": 0.7, "p99_all_ms": 20}]}`,
		filepath.Join(kept, "cluster.txt"):               "go1.26 linux/amd64, Redis 7.0.15\n\n### Cost\n\n| limiter | µs |\n| --- | ---: |\n| throttled | 4.1 |\n",
		filepath.Join(kept, "virtual.json"):              playedJSON,
		filepath.Join(kept, "scenarios-00-step-5.json"):  playedJSON,
		filepath.Join(kept, "scenarios-01-step-10.json"): playedJSON,
	} {
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	}
	return out, kept
}

// What has been measured is not measured again, so this runs nothing.
func TestPageIsMadeOfTheFigures(t *testing.T) {
	out, kept := figures(t)
	var log bytes.Buffer
	require.NoError(t, run(t.Context(), []string{"-out", out, "-figures", kept}, &log))
	require.Empty(t, log.String())
	text, err := os.ReadFile(filepath.Join(out, "benchmarks.md"))
	require.NoError(t, err)
	for _, want := range []string{
		"| bucket | 12.3 |",
		"| guard | 5×: goodput | of best fixed | p99 ms | refusal p99 ms |\n| --- | ---: |",
		"| none | 0.00 | - |", "| spillway | 0.98 | 0.98 | - | - |", "| fixed:4 | 1.00 | 1.00 | 80 |",
		"| guard | ramp 5×: goodput | p99 ms | storm 3×: goodput | p99 ms | storm 0.8×: goodput | p99 ms |",
		"| spillway | 0.90 | - | 0.80 | - | 0.70 | 20 |", "| aegis | 0.50 | 70 |  |  |  |  |",
		"Two ms. The bare server can serve 200 requests a second.", "(overload-cpu.svg)",
		"| goodput, % | vegas |\n| --- | ---: |\n| pool 2× | 95.5 |", "| wrongly refused, % | vegas |\n| --- | ---: |\n| pool 2× | 1.00 |",
		"| p99, ms | vegas |\n| --- | ---: |\n| pool 2× | - |",
		"    go run ./bench/cluster\n\nRedis 7.0.15, on the same processors.\n\n### Cost\n\n| limiter | µs |\n| --- | ---: |\n| throttled | 4.1 |\n\n<!-- end of cluster -->",
		"-works WORK -loads 10 -seconds 5 -settle 1\n", "| guard | cpu |\n| --- | ---: |\n| none | 0.0 |\n| spillway | 1.5 |\n",
	} {
		require.Contains(t, string(text), want)
	}
	require.Less(t, bytes.Index(text, []byte("| none |")), bytes.Index(text, []byte("| spillway |")))
	require.Less(t, bytes.Index(text, []byte("| fixed:4 |")), bytes.Index(text, []byte("| fixed:16 |")))
	picture, err := os.ReadFile(filepath.Join(out, "overload-cpu.svg"))
	require.NoError(t, err)
	require.Contains(t, string(picture), "fixed:4")
	require.NotContains(t, string(picture), "fixed:16", "the best fixed limit alone")
}

func TestPictureIsXML(t *testing.T) {
	d := xml.NewDecoder(strings.NewReader(draw([]served{
		{Guard: "none", Load: 2}, {Guard: "a<b", Load: 2, Goodput: 3}, {Guard: "spillway", Load: 10, Goodput: 0.5}, {Guard: "fixed:1", Load: 10, Goodput: 0.4},
	})))
	for {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err)
	}
}

// The line of 1.0 has a name, values stand beside it, and a guard has the colour that it has in the reports.
func TestPictureIsReadable(t *testing.T) {
	picture := draw([]served{
		{Guard: "fixed:4", Load: 2, Goodput: 0.97}, {Guard: "spillway", Load: 2, Goodput: 1.4}, {Guard: "fixed:8", Load: 5, Goodput: 0.5}, {Guard: "mine", Load: 5, Goodput: 1},
	})
	require.Contains(t, picture, `<text x="610" y="20" text-anchor="middle">1.0</text><line class="g" x1="610"`)
	values := regexp.MustCompile(`<text x="(\d+)" y="\d+" text-anchor="end">\d\.\d\d</text>`).FindAllStringSubmatch(picture, -1)
	require.Len(t, values, 4)
	for _, v := range values {
		require.Equal(t, "716", v[1], "right of the longest bar, which ends at 685")
	}
	require.Regexp(t, `fixed:4</text><rect class="r2"`, picture)
	require.Regexp(t, `fixed:8</text><rect class="r2"`, picture)
	require.Regexp(t, `spillway</text><rect class="r1" x="110" y="\d+" width="575.0"`, picture)
	require.Contains(t, picture, ".r1{fill:"+report.First.Light()+"}")
}

func TestFiguresThatAreNotThere(t *testing.T) {
	out, _ := figures(t)
	_, err := renderMicro(&settings{out: out, figures: out})
	require.ErrorIs(t, err, errNoFigures)
}

func TestMeasureRunsWhatIsMissing(t *testing.T) {
	s := &settings{figures: t.TempDir()}
	p := &part{name: "x", files: "x*", commands: func(bool) []command {
		return []command{{"x1.txt", "echo told", true}, {"x2.txt", "cp go.mark FILE", false}}
	}}
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("go.mark", []byte("copied"), 0o600))
	var log bytes.Buffer
	require.NoError(t, s.measure(t.Context(), p, &log))
	for name, want := range map[string]string{"x1.txt": "told\n", "x2.txt": "copied"} {
		text, err := os.ReadFile(filepath.Join(s.figures, name))
		require.NoError(t, err)
		require.Equal(t, want, string(text))
	}
	require.Equal(t, "echo told\ncp go.mark x2.txt\n", log.String())
	log.Reset()
	require.NoError(t, s.measure(t.Context(), p, &log))
	require.Empty(t, log.String())

	s.figures = t.TempDir()
	p.commands = func(bool) []command { return []command{{"x", "false", false}} }
	require.ErrorContains(t, s.measure(t.Context(), p, &log), "false")
}

func TestFlags(t *testing.T) {
	s, err := parse([]string{"-only", "virtual,micro", "-quick"}, io.Discard)
	require.NoError(t, err)
	require.Equal(t, []string{"virtual", "micro"}, s.only)
	require.Equal(t, "docs", s.out)
	for _, args := range [][]string{{"-only", "all"}, {"-only", ""}, {"stray"}} {
		_, err := parse(args, io.Discard)
		require.Error(t, err, "%q", args)
	}
}

// Each command writes a file that its part finds again.
func TestCommandsWriteWhatIsRead(t *testing.T) {
	for _, p := range parts() {
		for _, quick := range []bool{false, true} {
			for _, c := range p.commands(quick) {
				ok, err := filepath.Match(p.files, c.file)
				require.NoError(t, err)
				require.True(t, ok, c.file)
				require.Equal(t, !c.prints, strings.Contains(c.words, "FILE"), c.words)
			}
		}
	}
}
