package envoyrls

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"go.yaml.in/yaml/v3"
)

const (
	maxDepth       = 32      // levels of descriptors, and entries of a descriptor that a limit can be for
	maxDescriptors = 1 << 15 // of one file, with each use of an alias
	maxPaths       = 1 << 23 // bytes of the keys and values on the way to all rules of a file
	maxFile        = 1 << 20 // bytes
)

// A domain is the content of one file.
type domain struct {
	name string
	root level
}

// A level holds descriptors by their keys.
type level map[string]*branch

// A branch holds the descriptors of one key.
type branch struct {
	values map[string]*node
	wild   []*node // with a "*" at the end of their value, in the order of the file
	others *node   // without a value; or nil
}

// A node is a descriptor of a file.
type node struct {
	value string // without the "*"
	share bool   // one limit for all values that fit
	rule  *rule  // nil if it has no limit
	below level
}

// A rule is a limit of a file, or one that Envoy sent.
type rule struct {
	domain, path string // its place: "shop" and "path=/api/*|method=POST"
	title        string // the name for header fields: the name, or the keys of the path
	name         string
	replaces     []string
	unlimited    bool
	shadow       bool
	perUnit      uint32
	unit         ratelimitv3.RateLimitResponse_RateLimit_Unit

	limit   limit                                    // zero if unlimited, or if perUnit is 0
	current *ratelimitv3.RateLimitResponse_RateLimit // nil if unlimited; shared by all answers
	counts  *counts
}

// Check returns the error of files of descriptors by their names, or nil. Each is for another domain.
func Check(files map[string][]byte) error {
	_, err := parseAll(files)
	return err
}

// parseAll reads files, in the order of their names.
func parseAll[T ~[]byte | ~string](files map[string]T) ([]*domain, error) {
	var domains []*domain
	from := map[string]string{}
	for _, name := range sorted(files) {
		d, err := parse(name, []byte(files[name]))
		if err != nil {
			return nil, err
		}
		if other, twice := from[d.name]; twice {
			return nil, fmt.Errorf("envoyrls: %s: domain: must be in one file, got %q, which is in %s", name, d.name, other)
		}
		from[d.name] = name
		domains = append(domains, d)
	}
	return domains, nil
}

// parse reads a file. Its rules have no limits yet.
func parse(name string, file []byte) (*domain, error) {
	if len(file) > maxFile {
		return nil, fmt.Errorf("envoyrls: %s: must have at most %d bytes, got %d", name, maxFile, len(file))
	}
	p := &parser{}
	d, err := p.domain(file)
	if err != nil {
		return nil, fmt.Errorf("envoyrls: %s: %w", name, err)
	}
	return d, nil
}

type parser struct {
	domainName string
	seen       int // descriptors
	paths      int // bytes
}

func (p *parser) domain(file []byte) (*domain, error) {
	decoder := yaml.NewDecoder(strings.NewReader(string(file)))
	var doc, more yaml.Node
	if err := decoder.Decode(&doc); err != nil {
		return nil, fmt.Errorf("must be a YAML document: %w", err)
	}
	if err := decoder.Decode(&more); err == nil {
		return nil, at(&more, "document: must be one in a file, got another")
	}
	f, err := fieldsOf(doc.Content[0], "file", "domain", "descriptors")
	if err != nil {
		return nil, err
	}
	if p.domainName, err = f.text("domain"); err != nil {
		return nil, err
	}
	if p.domainName == "" {
		return nil, at(f.node, `domain: must be set, got ""`)
	}
	d := &domain{name: p.domainName}
	d.root, err = p.level(f, nil, 1)
	return d, err
}

// level reads the field descriptors of f, which stands below the parents.
func (p *parser) level(f *fields, parents []step, depth int) (level, error) {
	list, err := f.list("descriptors")
	if err != nil || list == nil {
		return nil, err
	}
	if depth > maxDepth {
		return nil, at(list, "descriptors: must be at most %d levels deep", maxDepth)
	}
	l := level{}
	for _, item := range list.Content {
		if p.seen++; p.seen > maxDescriptors {
			return nil, at(item, "descriptors: must be at most %d in a file", maxDescriptors)
		}
		if err := p.descriptor(l, item, parents, depth); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// A step is a key and a value of a path.
type step struct{ key, value string }

func (p *parser) descriptor(l level, item *yaml.Node, parents []step, depth int) error {
	f, err := fieldsOf(item, "descriptor", "key", "value", "rate_limit", "descriptors", "shadow_mode", "share_threshold", "detailed_metric",
		"value_to_metric")
	if err != nil {
		return err
	}
	key, err1 := f.text("key")
	value, err2 := f.text("value")
	shadow, err3 := f.bool("shadow_mode")
	share, err4 := f.bool("share_threshold")
	detailed, err5 := f.bool("detailed_metric")
	asMetric, err6 := f.bool("value_to_metric")
	if err := errors.Join(err1, err2, err3, err4, err5, err6); err != nil {
		return err
	}
	wild := strings.HasSuffix(value, "*")
	switch {
	case key == "":
		return at(f.node, `key: must be set, got ""`)
	case share && !wild:
		return at(f.at("share_threshold"), "share_threshold: needs a value that ends in *, got value %q", value)
	case detailed:
		return at(f.at("detailed_metric"), "detailed_metric: must be false, got true: values of requests are no labels of metrics here")
	case asMetric:
		return at(f.at("value_to_metric"), "value_to_metric: must be false, got true: values of requests are no labels of metrics here")
	}
	n := &node{value: strings.TrimSuffix(value, "*"), share: share}
	path := append(slices.Clip(parents), step{key, value})
	if n.rule, err = p.rule(f, path); err != nil {
		return err
	}
	switch {
	case n.rule != nil:
		n.rule.shadow = shadow
	case shadow:
		return at(f.at("shadow_mode"), "shadow_mode: needs a rate_limit beside it, got none: it does not apply to the descriptors below")
	}
	if n.below, err = p.level(f, path, depth+1); err != nil {
		return err
	}
	if !l.add(key, value, n, wild) {
		return at(f.node, "descriptor: must be there once, got another with key %q and value %q", key, value)
	}
	return nil
}

// add reports whether there is no such descriptor yet.
func (l level) add(key, value string, n *node, wild bool) bool {
	b := l[key]
	if b == nil {
		b = &branch{values: map[string]*node{}}
		l[key] = b
	}
	switch {
	case wild:
		for _, other := range b.wild {
			if other.value == n.value {
				return false
			}
		}
		b.wild = append(b.wild, n)
	case value == "":
		if b.others != nil {
			return false
		}
		b.others = n
	default:
		if b.values[value] != nil {
			return false
		}
		b.values[value] = n
	}
	return true
}

// rule reads the field rate_limit of a descriptor, or returns nil.
func (p *parser) rule(descriptor *fields, path []step) (*rule, error) {
	at0 := descriptor.at("rate_limit")
	if at0 == nil || at0.ShortTag() == "!!null" {
		return nil, nil //nolint:nilnil // no limit is valid
	}
	f, err := fieldsOf(at0, "rate_limit", "unit", "requests_per_unit", "unlimited", "name", "replaces")
	if err != nil {
		return nil, err
	}
	r := &rule{domain: p.domainName}
	unit, err1 := f.text("unit")
	perUnit, err2 := f.number("requests_per_unit")
	unlimited, err3 := f.bool("unlimited")
	name, err4 := f.text("name")
	replaces, err5 := f.replaces(name)
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		return nil, err
	}
	r.perUnit, r.unlimited, r.name, r.replaces = perUnit, unlimited, name, replaces
	for _, s := range path {
		p.paths += len(s.key) + len(s.value)
	}
	if p.paths > maxPaths {
		return nil, at(f.node, "descriptors: keys and values must have at most %d bytes, over all rules with their parents", maxPaths)
	}
	r.path, r.title = describe(path, name)
	switch {
	case unlimited && unit != "":
		return nil, at(f.at("unit"), "unit: must not be set beside unlimited, got %q", unit)
	case unlimited && perUnit > 0:
		return nil, at(f.at("requests_per_unit"), "requests_per_unit: must not be set beside unlimited, got %d", perUnit)
	case unlimited:
		return r, nil
	case f.at("requests_per_unit") == nil:
		return nil, at(f.node, "requests_per_unit: must be set, got none; 0 refuses everything")
	}
	var ok bool
	if r.unit, ok = unitNamed(unit); !ok {
		return nil, at(orNode(f.at("unit"), f.node), "unit: must be second, minute, hour, day, week, month or year, got %q", unit)
	}
	r.current = currentOf(r)
	return r, nil
}

func currentOf(r *rule) *ratelimitv3.RateLimitResponse_RateLimit {
	return &ratelimitv3.RateLimitResponse_RateLimit{Name: r.name, RequestsPerUnit: r.perUnit, Unit: r.unit}
}

func unitNamed(text string) (ratelimitv3.RateLimitResponse_RateLimit_Unit, bool) {
	n, ok := ratelimitv3.RateLimitResponse_RateLimit_Unit_value[strings.ToUpper(text)]
	return ratelimitv3.RateLimitResponse_RateLimit_Unit(n), ok && n != 0
}

// describe returns the path of a rule as text, and its name for header fields. That name has no values, since a value can be a
// secret.
func describe(path []step, name string) (place, title string) {
	keys := make([]string, len(path))
	var b []byte
	for i, s := range path {
		keys[i], b = s.key, appendEntry(b, s.key, s.value)
	}
	if name == "" {
		name = strings.Join(keys, ".")
	}
	return string(b), printable(name)
}

// printable returns a text as the name of a limit in header fields: at most 64 characters of ASCII.
func printable(text string) string {
	b := []byte(text[:min(len(text), 64)])
	for i, c := range b {
		if c < ' ' || c > '~' {
			b[i] = '?'
		}
	}
	return string(b)
}
