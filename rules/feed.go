package rules

import (
	"encoding/json"
	"iter"
	"time"

	"github.com/spillway-go/spillway/internal/feed"
	"github.com/spillway-go/spillway/stats"
)

// Stats is a snapshot of a [Set].
type Stats struct {
	Version    int           // number of the one in force; 0 are the built values
	Hash       string        // of its document; "" for the built values
	Changed    time.Time     // when it took effect
	Pinned     bool          // by Pin
	Applied    int64         // documents that took effect
	Invalid    int64         // documents that were refused
	Held       int64         // documents that were valid while the Set was pinned
	Unreadable int64         // reads of the source that failed
	Age        time.Duration // since the source last gave a valid document; -1 if the Set follows no source
	Err        error         // why the last read failed, or the last document was refused
}

// Stats returns a snapshot.
func (s *Set) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stats
	if st.Age = -1; s.watch != nil {
		st.Age = time.Since(s.good)
	}
	return st
}

// MarshalJSON returns the fields of st by name. Err is its text, or null.
func (st Stats) MarshalJSON() ([]byte, error) {
	type plain Stats
	out := struct {
		plain
		Err *string
	}{plain: plain(st)}
	if st.Err != nil {
		text := st.Err.Error()
		out.Err = &text
	}
	return json.Marshal(out) //nolint:wrapcheck,musttag // package json calls this; the names of the fields are the keys
}

const documents = "Documents by what became of them."

var statsRows = []feed.Row{
	feed.Gauge("Version", "spillway.rules.version", "{version}", "Number of the version in force. 0 are the values of the program."),
	feed.Info("Hash", "spillway.rules.document", "Always 1. The label is the hash of the document in force.", "hash"),
	feed.Gauge("Changed", "spillway.rules.changed", "s", "Unix time when the version in force took effect."),
	feed.Gauge("Pinned", "spillway.rules.pinned", "", "1 while an operator keeps a version, and new documents wait."),
	feed.Count("Applied", "spillway.rules.documents", "{document}", documents, stats.Label{Name: "result", Value: applied}),
	feed.Count("Invalid", "spillway.rules.documents", "{document}", documents, stats.Label{Name: "result", Value: refused}),
	feed.Count("Held", "spillway.rules.documents", "{document}", documents, stats.Label{Name: "result", Value: held}),
	feed.Count("Unreadable", "spillway.rules.read_failures", "{read}", "Reads of the source that failed."),
	feed.Gauge("Age", "spillway.rules.age", "s", "Time since the source last gave a valid document. Absent without a source."),
	feed.Up("Err", "spillway.rules.up", "1 if the last document could be read and was valid."),
}

// Metrics yields the figures of [Set.Stats].
func (s *Set) Metrics() iter.Seq[stats.Metric] { return feed.Of(s, statsRows, s.Stats) }

var _ stats.Source = (*Set)(nil)
