package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"os"
	"reflect"
	"slices"
	"time"
)

// A golden is the result of -sweep for a row: the figures of the bare server and those of the best fixed limit, with
// one value for each seed from 1 on.
type golden struct {
	Row       string   `json:"row"`
	Sum       string   `json:"sum"` // of the scenario, to see that it has changed since
	Bare      measured `json:"bare"`
	BestLimit int      `json:"best_limit"` // of the greatest goodput; 0 is none
	Best      measured `json:"best"`
	P99Limit  int      `json:"p99_limit"` // of the lowest p99 among those with 0.97 of the greatest goodput
	P99       measured `json:"p99"`
}

// measured are the figures of a fixed limit, by seed; -1 stands for one that a run does not have.
type measured struct {
	Goodput []float64 `json:"goodput"`
	First5s []float64 `json:"first5s"`
	P99Ms   []float64 `json:"p99_ms"`
	InTime  []float64 `json:"in_time"`
}

// sum returns a checksum of the whole scenario of the row.
func (r *suiteRow) sum() string {
	h := fnv.New64a()
	describe(h, reflect.ValueOf(r.scenario))
	return fmt.Sprintf("%016x", h.Sum64())
}

// describe writes v without fields that are zero, so that a new field of a scenario changes only the rows that use it.
func describe(w io.Writer, v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if !v.Field(i).IsZero() {
				fmt.Fprint(w, v.Type().Field(i).Name, "{")
				describe(w, v.Field(i))
				fmt.Fprint(w, "}")
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			fmt.Fprint(w, "[")
			describe(w, v.Index(i))
			fmt.Fprint(w, "]")
		}
	default:
		fmt.Fprintf(w, "%v", v)
	}
}

// bestP99 returns the p99 of the best fixed limit, 0 if it is not known.
func (g *golden) bestP99(s settings) time.Duration {
	if g == nil || known(over(g.P99.P99Ms, s)) == nil {
		return 0
	}
	return time.Duration(over(g.P99.P99Ms, s) * float64(time.Millisecond))
}

//go:embed testdata/best.json
var goldenText []byte

// readGolden returns the golden figures by row.
func readGolden(text []byte) (map[string]*golden, error) {
	var all []*golden
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("the golden file: %w", err)
	}
	byRow := map[string]*golden{}
	for _, g := range all {
		byRow[g.Row] = g
	}
	return byRow, nil
}

// writeGolden writes the figures of the existing rows, in their order.
func writeGolden(file string, byRow map[string]*golden) error {
	var text []byte
	for _, r := range rows() {
		g := byRow[r.key()]
		if g == nil {
			continue
		}
		line, err := json.Marshal(g)
		if err != nil {
			return err
		}
		if len(text) > 0 {
			text = append(text, ",\n"...)
		}
		text = append(text, line...)
	}
	return os.WriteFile(file, slices.Concat([]byte("[\n"), text, []byte("\n]\n")), 0o644) //nolint:gosec // a file of the tree
}

// over returns the mean of a figure over the seeds that the suite plays, if the sweep has played them, or else over all.
func over(values []float64, s settings) float64 {
	if s.seed == 1 && s.runs < len(values) {
		values = values[:s.runs]
	}
	var sum float64
	for _, v := range values {
		if v < 0 {
			return math.NaN()
		}
		sum += v
	}
	return sum / float64(len(values))
}
