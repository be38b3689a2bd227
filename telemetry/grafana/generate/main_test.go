package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestGeneratedFilesAreCurrent(t *testing.T) {
	for name, text := range files() {
		have, err := os.ReadFile("../" + name)
		require.NoError(t, err)
		require.Equal(t, text, string(have), "%s: run go generate ./telemetry/grafana", name)
	}
	page, err := os.ReadFile("../../../docs/operating.md")
	require.NoError(t, err)
	require.Equal(t, documented(string(page)), string(page), "docs/operating.md: run go generate ./telemetry/grafana")
}

// The board has no overlapping panels, and everything that a reader needs.
func TestBoard(t *testing.T) {
	var b struct {
		Panels []struct {
			ID                       int
			Type, Title, Description string
			GridPos                  struct{ X, Y, W, H int }
			Datasource               struct{ UID string }
			Targets                  []struct{ Expr, LegendFormat string }
			FieldConfig              struct{ Defaults struct{ Unit string } }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(board()), &b))
	require.Greater(t, len(b.Panels), 20)
	ids, taken := map[int]bool{}, map[[2]int]bool{}
	for _, p := range b.Panels {
		require.False(t, ids[p.ID], p.ID)
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			require.Less(t, x, 24, p.Title)
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				require.False(t, taken[[2]int{x, y}], "%s overlaps another panel", p.Title)
				taken[[2]int{x, y}] = true
			}
		}
		if p.Type == "row" {
			continue
		}
		require.NotEmpty(t, p.Description, p.Title)
		require.NotEmpty(t, p.FieldConfig.Defaults.Unit, p.Title)
		require.NotEmpty(t, p.Targets, p.Title)
		require.Equal(t, "${datasource}", p.Datasource.UID, p.Title)
	}
}

// Every metric of the tables is one of the feed.
func TestMetricsExist(t *testing.T) {
	names, err := os.ReadFile("../../../testdata/metrics.txt")
	require.NoError(t, err)
	known := map[string]bool{}
	for line := range strings.Lines(string(names)) {
		name, _, _ := strings.Cut(line, "\t")
		known[strings.ReplaceAll(name, ".", "_")] = true
	}
	suffix := regexp.MustCompile(`(_(total|bucket|ratio|seconds))+$`)
	all := rules()
	for _, r := range rows {
		for _, p := range r.panels {
			for _, q := range p.queries {
				all += q.expr + "\n"
			}
		}
	}
	found := regexp.MustCompile(`\bspillway_[a-z_]+[a-z]\b`).FindAllString(all, -1)
	require.Greater(t, len(found), 40)
	for _, name := range found {
		if name != "spillway_demand" || !strings.Contains(all, "job:"+name) {
			require.Contains(t, known, suffix.ReplaceAllString(name, ""), name)
		}
	}
}

// Prometheus accepts the rules; each alert fires, and stays silent, as its table says.
func TestRules(t *testing.T) {
	tool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not installed: apt-get install prometheus")
	}
	for _, args := range [][]string{{"check", "rules", "../rules.yml"}, {"test", "rules", "../testdata/rules_test.yml"}} {
		out, err := exec.Command(tool, args...).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
}
