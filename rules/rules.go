package rules

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/spillway-go/spillway/internal/name"
)

// A Set holds the targets that documents give numbers to. It is made by [New]. All methods may be called concurrently;
// changes happen one after the other.
type Set struct {
	targets []*target // by name

	changing sync.Mutex // held during a change, and while a target is tuned
	pending  []byte     // while pinned: the document that Unpin applies; guarded by changing

	mu sync.Mutex
	// Guarded by mu.
	logger  *slog.Logger // nil is slog.Default
	watch   *Watch       // nil if the Set follows no source
	history history
	now     Version // in force
	stats   Stats   // without Age
	good    time.Time
}

// New returns a Set of the targets by name, which is a printable text of at most 64 bytes. The values that the targets have
// now are the built values: a document that omits a field gives it its built value. After New, let only the Set tune them.
// The error names a target that has no options to tune, or bounds that do not fit it.
func New(targets map[string]Target) (*Set, error) {
	s := new(Set)
	for _, key := range slices.Sorted(maps.Keys(targets)) {
		if _, err := name.Or("rules: target", key, ""); err != nil || key == "" {
			return nil, cmp.Or(err, errors.New("rules: the name of a target must not be empty"))
		}
		t, err := newTarget(key, targets[key])
		if err != nil {
			return nil, fmt.Errorf("rules: target %s: %w", key, err)
		}
		s.targets = append(s.targets, t)
	}
	s.stats.Changed = time.Now()
	s.now = Version{Time: s.stats.Changed, Source: "program", Result: applied, Document: []byte(emptyDocument)}
	s.history.add(s.now)
	return s, nil
}

// emptyDocument gives every field its built value.
const emptyDocument = `{"rules": {}}`

// Check returns the error that [Set.Apply] would return for a document, and changes nothing. If a target has no method
// Check, its own validation is left out.
func (s *Set) Check(document []byte) error {
	_, _, err := s.plan(document)
	return err
}

// Apply gives the targets the numbers of a document, all or none. A document with the content of the one in force changes
// nothing. The error names the field and the value; then nothing has changed. While the Set is pinned, Apply fails.
//
// A [Watch] does not undo Apply until its source has other content.
func (s *Set) Apply(document []byte) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	if st := s.Stats(); st.Pinned {
		return fmt.Errorf("rules: Apply: the Set is pinned to version %d: call Unpin first", st.Version)
	}
	return s.offer(bytes.Clone(document), "apply")
}

// Pin applies the document of an earlier version and keeps it: later documents of the source are checked and held until
// [Set.Unpin]. Version 0 has the built values, and can always be pinned. The error says that the version was refused or is
// no longer kept, or comes from a target.
func (s *Set) Pin(version int) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	s.mu.Lock()
	document, err := s.history.document(version)
	now, pinned := s.now, s.stats.Pinned
	s.mu.Unlock()
	if err != nil {
		return err
	}
	note, steps, err := s.plan(document)
	if err != nil {
		return err
	}
	changes, err := install(steps)
	if err == nil && !pinned {
		s.pending = now.Document
	}
	s.record(Version{Source: fmt.Sprintf("pin %d", version), Note: note, Changes: changes, Document: document}, err, err == nil || pinned)
	return err
}

// Unpin ends [Set.Pin] and applies the last document of the source, or the one that was in force before Pin. It does
// nothing if the Set is not pinned.
func (s *Set) Unpin() error {
	s.changing.Lock()
	defer s.changing.Unlock()
	s.mu.Lock()
	s.stats.Pinned = false
	s.mu.Unlock()
	pending := s.pending
	s.pending = nil
	if pending == nil {
		return nil
	}
	return s.offer(pending, "unpin")
}

// offer applies a document unless it is in force, or holds it while pinned. The caller holds changing.
func (s *Set) offer(document []byte, source string) error {
	s.mu.Lock()
	now, pinned := s.now, s.stats.Pinned
	s.mu.Unlock()
	if bytes.Equal(now.Document, document) && !pinned {
		return nil
	}
	note, steps, err := s.plan(document)
	e := Version{Source: source, Note: note, Document: document}
	switch {
	case err != nil:
	case pinned:
		e.Result, s.pending = held, document
	default:
		e.Changes, err = install(steps)
	}
	s.record(e, err, pinned)
	return err
}

// record adds a version to the history, the counts and the log.
func (s *Set) record(e Version, err error, pinned bool) {
	e.Time, e.Hash = time.Now(), hashOf(e.Document)
	s.mu.Lock()
	s.stats.Err, s.stats.Pinned = err, pinned
	switch {
	case err != nil:
		e.Result, e.Error, e.Document = refused, err.Error(), nil
		s.stats.Invalid++
	case e.Result == held:
		s.stats.Held++
	default:
		e.Result = applied
		s.stats.Applied++
	}
	e = s.history.add(e)
	if e.Result == applied {
		s.now, s.stats.Version, s.stats.Hash, s.stats.Changed = e, e.Number, e.Hash, e.Time
	}
	logger := cmp.Or(s.logger, slog.Default())
	s.mu.Unlock()
	attributes := []any{slog.Int("version", e.Number), slog.String("source", e.Source), slog.String("hash", e.Hash)}
	switch e.Result {
	case refused:
		logger.Warn("rules: document refused, the last good one stays", append(attributes, slog.String("error", e.Error))...)
	case held:
		logger.Info("rules: document held until Unpin", append(attributes, slog.String("note", e.Note))...)
	default:
		logger.Info("rules: document applied", append(attributes, slog.String("note", e.Note), slog.Any("changes", e.Changes))...)
	}
}

// A step is what is to be done to one target.
type step struct {
	*target
	want    value
	enforce float64 // by the Stage
}

// plan reads and checks a document, and returns a step for each target. It changes nothing.
func (s *Set) plan(document []byte) (note string, steps []step, err error) {
	doc, err := parse(document)
	if err != nil {
		return "", nil, err
	}
	for _, t := range s.targets {
		to := step{target: t, want: t.built.clone()}
		if err := to.take(doc.rules, t.name); err != nil {
			return "", nil, err
		}
		steps = append(steps, to)
		if t.next == nil {
			continue
		}
		if _, staged := doc.staged[t.name]; staged {
			steps[len(steps)-1].enforce = doc.enforce
		}
		next := step{target: t.next, want: to.want.clone()}
		if err := next.take(doc.staged, t.name); err != nil {
			return "", nil, err
		}
		steps = append(steps, next)
	}
	for _, unknown := range slices.Sorted(maps.Keys(doc.rules)) {
		return "", nil, fmt.Errorf("rules: the program has no target %q", unknown)
	}
	for _, unknown := range slices.Sorted(maps.Keys(doc.staged)) {
		return "", nil, fmt.Errorf("rules: stage: the program has no target %q with a Stage", unknown)
	}
	return doc.note, steps, nil
}

// take gives want the fields that a document has for the target, removes them there, and checks the result.
func (to *step) take(from map[string]any, name string) error {
	if fields, given := from[name]; given {
		if err := to.want.assign(fields, to.name); err != nil {
			return err
		}
		delete(from, name)
	}
	return to.validate(to.want)
}

// install tunes each target that has other numbers. If one fails, it puts back the others in reverse.
func install(steps []step) (changes []string, err error) {
	var before []step
	for _, to := range steps {
		was, lines, err := to.change(to.want)
		changes = append(changes, lines...)
		if was.IsValid() {
			before = append(before, step{target: to.target, want: was})
		}
		if err == nil {
			continue
		}
		for _, from := range slices.Backward(before) {
			if err2 := from.tune(from.want); err2 != nil {
				err = fmt.Errorf("%w (and %s could not be put back: %w)", err, from.name, err2)
			}
		}
		return nil, err
	}
	for _, to := range steps {
		if to.stage != nil && to.enforce != to.enforced {
			if err := to.stage.Enforce(1-to.enforce, to.enforce); err != nil { // never: parse has checked it
				return changes, err
			}
			changes = append(changes, fmt.Sprintf("%s.enforce: %v → %v", to.next.name, to.enforced, to.enforce))
			to.enforced = to.enforce
		}
	}
	if extra := len(changes) - maxChanges; extra > 0 {
		changes = append(changes[:maxChanges], fmt.Sprintf("and %d more", extra))
	}
	return changes, nil
}

// maxChanges is how many differences of a version are kept, and logged.
const maxChanges = 50

func hashOf(document []byte) string {
	sum := sha256.Sum256(document)
	return hex.EncodeToString(sum[:6])
}
