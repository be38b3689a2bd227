package main

import (
	"encoding/json"
	"fmt"
	"strings"
)

// renderShapes has a line for each guard, with its goodput over each whole load of each shape.
func renderShapes(s *settings) (string, error) {
	head := []string{"guard"}
	var all []served
	cells := map[string][]string{}
	when, err := load(s, "shapes*.json", func(text []byte) error {
		var f struct {
			Shape   string   `json:"shape"`
			Results []served `json:"results"`
		}
		if err := json.Unmarshal(text, &f); err != nil {
			return err
		}
		width, first := len(head), true
		for i, r := range f.Results {
			if first = first && r.Guard == f.Results[0].Guard; first {
				head = append(head, fmt.Sprintf("%s %g×: goodput", f.Shape, r.Load), "p99 ms")
			}
			if i == 0 || r.Guard != f.Results[i-1].Guard {
				cells[r.Guard] = padded(cells[r.Guard], width-1)
			}
			cells[r.Guard] = append(cells[r.Guard], fmt.Sprintf("%.2f", r.GoodputAll), number(r.P99All, 0))
		}
		all = append(all, f.Results...)
		return nil
	})
	if err != nil {
		return "", err
	}
	var rows [][]string
	for _, guard := range guards(all) {
		rows = append(rows, append([]string{guard}, padded(cells[guard], len(head)-1)...))
	}
	var words []string
	for _, c := range shapesCommands(s.quick) {
		words = append(words, strings.TrimSuffix(c.words, " -json FILE"))
	}
	return measured(when, words...) + table(head, rows), nil
}

// padded returns cells made up to n with empty ones.
func padded(cells []string, n int) []string {
	for len(cells) < n {
		cells = append(cells, "")
	}
	return cells
}
