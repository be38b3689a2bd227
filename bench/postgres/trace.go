package main

import (
	"encoding/csv"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-go/spillway/lab/overload"
)

// A trace is a CSV file of the figures of each shedder, beside those of the clients in the same 100 ms. A nil trace is
// not written.
type trace struct {
	file *os.File
	csv  *csv.Writer
	pass int
}

func openTrace(name string) (*trace, error) {
	if name == "" {
		return nil, nil //nolint:nilnil // no name, no trace
	}
	file, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	t := &trace{file: file, csv: csv.NewWriter(file)}
	return t, t.csv.Write([]string{
		"pass", "guard", "mix", "load", "fault", "time_s", "shedder", "limit", "in_flight", "reason", "refused", "served", "cpu", "cpu_smooth",
		"extra", "sent", "useful", "refusals", "timeouts", "failures",
	})
}

func (t *trace) close() error {
	if t == nil {
		return nil
	}
	t.csv.Flush()
	err := t.csv.Error()
	if closeErr := t.file.Close(); err == nil {
		err = closeErr
	}
	return err
}

// A bin counts the requests of one beat: sent by send time, the others by end time.
type bin struct{ sent, useful, refused, timeouts, failed int }

func bins(samples []sample, end time.Duration) []bin {
	out := make([]bin, end/beat+1)
	for _, s := range samples {
		out[min(int(s.at/beat), len(out)-1)].sent++
		b := &out[min(int((s.at+s.latency)/beat), len(out)-1)]
		switch {
		case s.useful():
			b.useful++
		case s.kind == refused:
			b.refused++
		case s.kind == answered, s.kind == timeout:
			b.timeouts++
		default:
			b.failed++
		}
	}
	return out
}

// write appends a cell. Times count from the step, which was step after base.
func (t *trace) write(c cell, base time.Time, step, end time.Duration, samples []sample, seen []glimpse) error {
	if t == nil {
		return nil
	}
	seenByClients := bins(samples, end+deadline)
	for _, g := range seen {
		at := time.Unix(0, g.UnixNano).Sub(base)
		i := int(at / beat)
		if at < 0 || i >= len(seenByClients) {
			continue
		}
		b := seenByClients[i]
		for _, name := range slices.Sorted(maps.Keys(g.Views)) {
			row := []string{strconv.Itoa(t.pass), c.guard, c.mix.name, fmt.Sprint(c.load), c.fault, fmt.Sprintf("%.1f", (at - step).Seconds()), name}
			row = append(row, believed(g.Views[name])...)
			for _, n := range []int{b.sent, b.useful, b.refused, b.timeouts, b.failed} {
				row = append(row, strconv.Itoa(n))
			}
			if err := t.csv.Write(row); err != nil {
				return err
			}
		}
	}
	t.csv.Flush()
	return t.csv.Error()
}

// believed returns the columns limit to extra.
func believed(v overload.View) []string {
	var extra []string
	for _, key := range slices.Sorted(maps.Keys(v.Extra)) {
		extra = append(extra, fmt.Sprintf("%s=%.4g", key, v.Extra[key]))
	}
	return []string{
		number(v.Limit, 1), number(v.InFlight, 0), v.Reason, whole(v.Refused), whole(v.Admitted), number(v.CPURaw, 3), number(v.CPUSmoothed, 3),
		strings.Join(extra, " "),
	}
}

func whole(n *int64) string {
	if n == nil {
		return ""
	}
	return strconv.FormatInt(*n, 10)
}

// number prints x, or nothing if it is not known.
func number(x *float64, digits int) string {
	if x == nil {
		return ""
	}
	return strconv.FormatFloat(*x, 'f', digits, 64)
}
