package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func sample() *Page {
	return &Page{
		Title: "A title <b>&",
		Lead:  "What it is about.",
		Notes: []string{"a note"},
		Sections: []Section{{
			Title: "Section",
			Text:  "Some text.",
			Bars:  []BarGroup{{Title: "group", Bars: []Bar{{Name: "one", Text: "42 %", Value: 0.42, Role: First}, {Name: "over", Value: 1.3}, {Name: "nan", Value: math.NaN()}}}},
			Table: &Table{Head: []string{"name", "value"}, Rows: [][]string{{"row", "4711"}}},
			Charts: []Chart{{
				Title: "Chart", Unit: "%", X: []float64{0, 1, 2},
				Lines: []Line{{Name: "</script><script>alert(1)", Y: []float64{1.25, math.NaN(), math.Inf(1)}}},
				Bands: []Band{{0, 2, "band"}},
				Marks: []Mark{{1, "mark"}},
			}},
		}},
	}
}

func render(t *testing.T, p *Page) string {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, p.Write(&out))
	return out.String()
}

func TestWriteShowsEverything(t *testing.T) {
	html := render(t, sample())
	for _, want := range []string{
		"A title &lt;b&gt;&amp;", "What it is about.", "a note", "Some text.", "group", "42 %", "width:42.0%", "width:100.0%", "4711",
		"prefers-color-scheme: dark", `name="viewport"`, "uPlot",
	} {
		require.Contains(t, html, want)
	}
	require.Equal(t, 1, strings.Count(html, `<div class="chart" `))
	require.NotContains(t, html, "ZgotmplZ", "the template refused a value")
}

func TestWriteHoldsTheData(t *testing.T) {
	html := render(t, sample())
	data := regexp.MustCompile(`const charts = (.*);</script>`).FindStringSubmatch(html)
	require.Len(t, data, 2)
	var charts []struct {
		Data  [][]*float64 `json:"data"`
		Lines []struct{ Name string }
		Bands []Band
	}
	require.NoError(t, json.Unmarshal([]byte(data[1]), &charts))
	require.Len(t, charts, 1)
	require.InDelta(t, 1.25, *charts[0].Data[1][0], 0)
	require.Nil(t, charts[0].Data[1][1], "NaN is a gap")
	require.Nil(t, charts[0].Data[1][2], "so is an infinity")
	require.Equal(t, "</script><script>alert(1)", charts[0].Lines[0].Name, "it comes back as it was")
	require.NotContains(t, html, "</script><script>alert", "and does not end the script on the way")
	require.Equal(t, []Band{{0, 2, "band"}}, charts[0].Bands)
}

func TestWriteNeedsNoNetwork(t *testing.T) {
	html := render(t, sample())
	require.Contains(t, html, "default-src 'none'", "the browser is told to fetch nothing")
	for _, fetch := range []string{`(?i)\bsrc\s*=`, `(?i)\bhref\s*=`, `(?i)url\(`, `(?i)@import`, `(?i)\bfetch\(`, `XMLHttpRequest`, `(?i)<link`} {
		require.NotRegexp(t, fetch, html)
	}
}

func TestWriteEmptyPage(t *testing.T) {
	require.Contains(t, render(t, &Page{Title: "empty"}), "const charts = [];")
}

func TestWriteRefusesWhatIsNotInOrder(t *testing.T) {
	p := sample()
	p.Sections[0].Charts[0].Lines[0].Y = []float64{1}
	require.ErrorContains(t, p.Write(&bytes.Buffer{}), `line "</script><script>alert(1)" has 1 values for 3 of X`)

	p = sample()
	p.Sections[0].Charts[0].Log = true
	require.ErrorContains(t, p.Write(&bytes.Buffer{}), "Min: must be above 0 with Log, got 0")
}

type broken struct{}

var errBroken = errors.New("broken")

func (broken) Write([]byte) (int, error) { return 0, errBroken }

func TestWriteReportsAFailingWriter(t *testing.T) {
	require.ErrorIs(t, sample().Write(broken{}), errBroken)
}

func TestRoleAtNeverGivesBare(t *testing.T) {
	for i := range 20 {
		require.NotEqual(t, Bare, RoleAt(i))
		require.Less(t, RoleAt(i), roles)
	}
	require.Equal(t, First, RoleAt(0))
}

func TestRolesGiveAGuardItsColourEverywhere(t *testing.T) {
	one := Roles([]string{"none", "spillway", "fixed:4"})
	two := Roles([]string{"gradient2", "fixed:8", "fixed:16", "mine", "spillway", "none"})
	for _, guard := range []string{"none", "spillway"} {
		require.Equal(t, one[guard], two[guard], guard)
	}
	require.Equal(t, one["fixed:4"], two["fixed:8"])
	seen := map[Role]bool{}
	for guard, role := range two {
		require.False(t, seen[role], "%s has the colour of another", guard)
		seen[role] = true
	}
	var many []string
	for i := range 30 {
		many = append(many, strings.Repeat("x", i+1))
	}
	require.Len(t, Roles(many), 30, "they begin again")
}

func TestEachRoleHasTwoColours(t *testing.T) {
	for role := range roles {
		require.Regexp(t, `^#[0-9a-f]{6}$`, role.Light())
		require.Regexp(t, `^#[0-9a-f]{6}$`, role.Dark())
		require.NotEqual(t, role.Light(), role.Dark())
	}
	require.Empty(t, roles.Light())
}

func TestFileKnowsItsFiles(t *testing.T) {
	for _, name := range []string{"uplot.js", "uplot.css", "chart.js", "page.css"} {
		data, err := File(name)
		require.NoError(t, err)
		require.NotEmpty(t, data)
	}
	_, err := File("nothing")
	require.Error(t, err)
}

func TestLibraryComesWithItsLicence(t *testing.T) {
	licence, err := os.ReadFile("uplot/LICENSE")
	require.NoError(t, err)
	require.Contains(t, string(licence), "MIT")
}
