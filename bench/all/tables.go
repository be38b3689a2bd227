package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"
)

var errNoFigures = errors.New("there are no figures")

// table writes a table: the first column to the left, the others to the right.
func table(head []string, rows [][]string) string {
	var b strings.Builder
	line := func(cells []string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	line(head)
	rule := make([]string, len(head))
	for i := range rule {
		rule[i] = "---"
		if i > 0 {
			rule[i] += ":"
		}
	}
	line(rule)
	for _, r := range rows {
		line(r)
	}
	return b.String()
}

// measured says where, when and how the figures were measured.
func measured(when time.Time, commands ...string) string {
	return fmt.Sprintf("Measured on %s with %s %s/%s on %d processors of an %s:\n\n    %s\n\n", when.Format(time.DateOnly),
		runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), processor(), strings.Join(commands, "\n    "))
}

// processor returns the name of the CPU, if the system tells it.
func processor() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown processor"
	}
	if m := regexp.MustCompile(`(?m)^model name\s*: (.*)$`).FindSubmatch(text); m != nil {
		return string(m[1])
	}
	return "unknown processor"
}

// load reads all files of figures that match the pattern with add, in the order of their names. It returns the time of
// the last write.
func load(s *settings, pattern string, add func(text []byte) error) (when time.Time, err error) {
	files, err := filepath.Glob(filepath.Join(s.figures, pattern))
	if err != nil {
		return when, err
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			return when, err
		}
		if err := add(text); err != nil {
			return when, fmt.Errorf("%s: %w", name, err)
		}
		info, err := os.Stat(name)
		if err != nil {
			return when, err
		}
		if t := info.ModTime(); t.After(when) {
			when = t
		}
	}
	if len(files) == 0 {
		return when, errNoFigures
	}
	return when, nil
}

func renderMicro(s *settings) (string, error) {
	var lines []string
	when, err := load(s, "micro*.txt", func(text []byte) error {
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "|") {
				lines = append(lines, strings.Join(strings.Fields(line), " "))
			}
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	return measured(when, microCommands(s.quick)[0].words) + strings.Join(lines, "\n") + "\n", nil
}

// renderCluster copies the tables with their headings, but not the first line, which describes the setup.
func renderCluster(s *settings) (string, error) {
	var first, tables string
	when, err := load(s, "cluster*.txt", func(text []byte) error {
		first, tables, _ = strings.Cut(string(text), "\n")
		return nil
	})
	if err != nil {
		return "", err
	}
	_, redis, _ := strings.Cut(first, ", ")
	return measured(when, clusterCommands(s.quick)[0].words) + redis + ", on the same processors.\n\n" + strings.TrimSpace(tables) + "\n", nil
}

// A played is one policy's figures in one scenario, as examples/simulate and bench/virtual write them.
type played struct {
	Policy         string   `json:"policy"`
	Scenario       string   `json:"scenario"`
	Load           float64  `json:"load"`
	Goodput        *float64 `json:"goodput"`
	First5s        *float64 `json:"first5s"`
	P99Ms          *float64 `json:"p99_ms"`
	WronglyRefused *float64 `json:"wrongly_refused"`
}

func loadPlayed(s *settings, pattern string) (all []played, when time.Time, err error) {
	when, err = load(s, pattern, func(text []byte) error {
		var f struct {
			Results []played `json:"results"`
		}
		err := json.Unmarshal(text, &f)
		all = append(all, f.Results...)
		return err
	})
	return all, when, err
}

// playedTables has one table for each figure: a line for each scenario, a column for each policy.
func playedTables(all []played) string {
	var scenarios, policies []string
	cells := map[[2]string]played{}
	for _, p := range all {
		scenario := fmt.Sprintf("%s %g×", p.Scenario, p.Load)
		scenarios, policies = appendNew(scenarios, scenario), appendNew(policies, p.Policy)
		cells[[2]string{scenario, p.Policy}] = p
	}
	var tables []string
	for _, f := range []struct {
		head string
		cell func(played) string
	}{
		{"goodput, %", func(p played) string { return hundredth(p.Goodput, 1) }},
		{"goodput of the first 5 s, %", func(p played) string { return hundredth(p.First5s, 1) }},
		{"wrongly refused, %", func(p played) string { return hundredth(p.WronglyRefused, 2) }},
		{"p99, ms", func(p played) string { return number(p.P99Ms, 0) }},
	} {
		var rows [][]string
		for _, scenario := range scenarios {
			row := []string{scenario}
			for _, policy := range policies {
				row = append(row, f.cell(cells[[2]string{scenario, policy}]))
			}
			rows = append(rows, row)
		}
		tables = append(tables, table(append([]string{f.head}, policies...), rows))
	}
	return strings.Join(tables, "\n")
}

func appendNew(list []string, s string) []string {
	if slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}

func renderVirtual(s *settings) (string, error) {
	all, when, err := loadPlayed(s, "virtual*.json")
	if err != nil {
		return "", err
	}
	return measured(when, virtualCommands(s.quick)[0].words) + playedTables(all), nil
}

func renderScenarios(s *settings) (string, error) {
	all, _, err := loadPlayed(s, "scenarios-*.json")
	if err != nil {
		return "", err
	}
	return "    go run ./examples/simulate -scenario NAME -load LOAD -policies spillway,gradient2,vegas,aimd,none\n\n" + playedTables(all), nil
}

func number(v *float64, digits int) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%.*f", digits, *v)
}

// hundredth is a fraction in percent, without the sign.
func hundredth(v *float64, digits int) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%.*f", digits, 100**v)
}
