package envoyrls

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"
)

// readTimeout bounds one read of a source.
const readTimeout = 5 * time.Second

type reloads struct {
	applied, refused, unreadable int64
	good                         time.Time // when all files were last valid
	err                          error     // why the last read failed, or the files were refused
}

func (s *Service) follow(ctx context.Context) {
	defer close(s.ended)
	ticker := time.NewTicker(s.o.Every)
	defer ticker.Stop()
	lost := outage{}
	for {
		select {
		case <-ticker.C:
			_ = s.read(ctx, false)
			s.watchRedis(&lost)
		case <-ctx.Done():
			return
		}
	}
}

// An outage is what the log says about Redis.
type outage struct {
	answered, unanswered int64
	is                   bool
}

// watchRedis logs that Redis does not answer, and that it answers again.
func (s *Service) watchRedis(o *outage) {
	answered, unanswered := s.answered.Load(), s.unanswered.Load()
	switch {
	case unanswered > o.unanswered && !o.is:
		o.is = true
		s.logger().Warn("envoyrls: Redis does not answer, the fallback decides")
	case unanswered == o.unanswered && answered > o.answered && o.is:
		o.is = false
		s.logger().Info("envoyrls: Redis answers again")
	}
	o.answered, o.unanswered = answered, unanswered
}

// Reload reads the files now, for example after SIGHUP, and returns why they cannot be read or are refused.
func (s *Service) Reload(ctx context.Context) error { return s.read(ctx, true) }

// read reads all files, and puts them in force if one of them has changed.
func (s *Service) read(ctx context.Context, again bool) error {
	s.reading.Lock()
	defer s.reading.Unlock()
	files, err := s.files(ctx)
	switch {
	case s.closed:
		return errors.New("envoyrls: the Service is closed")
	case err != nil && ctx.Err() != nil: // closed, or the caller gave up
		return err
	case err != nil:
		return s.fail(err, &s.reload.unreadable, "envoyrls: a file cannot be read, the last good files stay")
	case s.seen == nil || !maps.Equal(files, s.seen) || again && s.verdict != nil:
		s.seen = files
		if s.verdict = s.apply(files); s.verdict != nil {
			return s.fail(s.verdict, &s.reload.refused, "envoyrls: a file is refused, the last good files stay")
		}
		s.logger().Info("envoyrls: files are in force", slog.Any("files", sorted(files)), slog.Int("rules", len(s.config.Load().rules)))
		s.succeed(1)
	case s.verdict != nil: // the same refused files
		s.mu.Lock()
		s.reload.err = s.verdict
		s.mu.Unlock()
	default:
		if s.logged != "" {
			s.logger().Info("envoyrls: all files can be read again")
		}
		s.succeed(0)
	}
	return s.verdict
}

// succeed notes that all files are valid.
func (s *Service) succeed(applied int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reload.applied += applied
	s.reload.good, s.reload.err, s.logged = time.Now(), nil, ""
}

// fail counts an error, and logs it unless it is the last one. The error of [New] is not logged.
func (s *Service) fail(err error, n *int64, text string) error {
	s.mu.Lock()
	*n++
	s.reload.err = err
	s.mu.Unlock()
	if s.config.Load() != nil && s.logged != err.Error() {
		s.logger().Warn(text, slog.Any("error", err))
	}
	s.logged = err.Error()
	return err
}

func (s *Service) logger() *slog.Logger {
	if s.o.Logger != nil {
		return s.o.Logger
	}
	return slog.Default()
}

func (s *Service) files(ctx context.Context) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	files := make(map[string]string, len(s.o.Config))
	for name, source := range s.o.Config {
		data, err := source(ctx)
		if err != nil {
			return nil, fmt.Errorf("envoyrls: %s: %w", name, err)
		}
		files[name] = string(data)
	}
	return files, nil
}

// apply puts files in force, all or none.
func (s *Service) apply(files map[string]string) error {
	domains, err := parseAll(files)
	if err != nil {
		return err
	}
	c := &config{domains: map[string]*domain{}, own: map[string]*counts{}}
	for _, d := range domains {
		c.domains[d.name] = d
		c.rules = append(c.rules, d.root.rules()...)
	}
	change, err := s.limits.prepare(c.rules)
	if err != nil {
		return fmt.Errorf("envoyrls: %w", err)
	}
	kept := map[ruleID]*counts{}
	countsOf := func(domain, path string) *counts {
		id := ruleID{domain: domain, path: path}
		if kept[id] = s.counts[id]; kept[id] == nil {
			kept[id] = new(counts)
		}
		return kept[id]
	}
	for _, r := range c.rules {
		r.shadow = r.shadow || s.o.DryRun
		r.counts = countsOf(r.domain, r.path)
	}
	for name := range c.domains {
		c.own[name] = countsOf(name, ownLimit)
	}
	s.counts = kept
	s.config.Store(c)
	s.limits.commit(change)
	return nil
}

// rules returns the rules of a level and of those below, sorted by their paths.
func (l level) rules() []*rule {
	var found []*rule
	add := func(n *node) {
		if n == nil {
			return
		}
		if n.rule != nil {
			found = append(found, n.rule)
		}
		found = append(found, n.below.rules()...)
	}
	for _, key := range sorted(l) {
		b := l[key]
		for _, value := range sorted(b.values) {
			add(b.values[value])
		}
		for _, n := range b.wild {
			add(n)
		}
		add(b.others)
	}
	return found
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
