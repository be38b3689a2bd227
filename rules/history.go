package rules

import (
	"fmt"
	"slices"
	"time"
)

// A Version is one document that was applied, refused or held. Its slices are shared: do not modify them.
type Version struct {
	Number   int       // from 1; 0 are the built values
	Time     time.Time // when it was applied, refused or held
	Source   string    // Options.Name of the source, "apply", "pin N", "unpin", or "program" for the built values
	Hash     string    // of the document: the first 12 hexadecimal digits of its SHA-256
	Note     string    // from the document
	Result   string    // "applied", "refused" or "held"
	Error    string    // why it was refused
	Changes  []string  // such as "api.SLO: 250ms → 300ms"; at most 50
	Document []byte    // as JSON; nil if it was refused
}

// The results.
const (
	applied = "applied"
	refused = "refused"
	held    = "held"
)

const (
	maxVersions = 32
	maxRefused  = maxVersions / 2 // so that a run of bad documents does not displace the good ones
)

// A history keeps the last versions, the oldest first.
type history struct {
	entries []Version
	next    int
}

func (h *history) add(e Version) Version {
	e.Number = h.next
	h.next++
	isRefused := func(e Version) bool { return e.Result == refused }
	h.entries = append(h.entries, e)
	bad := 0
	for _, e := range h.entries {
		if isRefused(e) {
			bad++
		}
	}
	switch {
	case bad > maxRefused:
		i := slices.IndexFunc(h.entries, isRefused)
		h.entries = slices.Delete(h.entries, i, i+1)
	case len(h.entries) > maxVersions:
		h.entries = slices.Delete(h.entries, 0, 1)
	}
	return e
}

// document returns the document of a version.
func (h *history) document(version int) ([]byte, error) {
	if version == 0 {
		return []byte(emptyDocument), nil
	}
	i := slices.IndexFunc(h.entries, func(e Version) bool { return e.Number == version })
	switch {
	case i < 0:
		return nil, fmt.Errorf("rules: Pin: version must be 0 or one of the last %d, got %d", maxVersions, version)
	case h.entries[i].Document == nil:
		return nil, fmt.Errorf("rules: Pin: version %d was refused: %s", version, h.entries[i].Error)
	}
	return h.entries[i].Document, nil
}

// Versions returns the last 32 versions, the oldest first. At most 16 of them are refused ones.
func (s *Set) Versions() []Version {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.history.entries)
}
