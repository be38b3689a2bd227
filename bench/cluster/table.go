package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// A table is written in Markdown.
type table struct {
	title string
	head  []string
	rows  [][]string
}

// add adds a row: a name, and pairs of a format and its value.
func (t *table) add(name string, pairs ...any) {
	row := []string{name}
	for i := 0; i+1 < len(pairs); i += 2 {
		row = append(row, fmt.Sprintf(fmt.Sprint(pairs[i]), pairs[i+1]))
	}
	t.rows = append(t.rows, row)
}

func (t *table) write(out io.Writer) error {
	fmt.Fprintf(out, "\n### %s\n\n", t.title)
	w := tabwriter.NewWriter(out, 0, 0, 1, ' ', 0)
	rule := make([]string, len(t.head))
	for i := range rule {
		rule[i] = "---:"
	}
	rule[0] = "---"
	for _, row := range append([][]string{t.head, rule}, t.rows...) {
		fmt.Fprintf(w, "| %s\t|\n", strings.Join(row, "\t| "))
	}
	return w.Flush()
}
