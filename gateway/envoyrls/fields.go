package envoyrls

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// fields are the fields of a mapping.
type fields struct {
	node  *yaml.Node
	named map[string]*yaml.Node
}

// at returns the error of a place of the file.
func at(n *yaml.Node, format string, args ...any) error {
	return fmt.Errorf("line %d: "+format, append([]any{n.Line}, args...)...)
}

func orNode(a, b *yaml.Node) *yaml.Node {
	if a != nil {
		return a
	}
	return b
}

// resolve follows an alias.
func resolve(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode && n.Alias != nil {
		n = n.Alias
	}
	return n
}

// fieldsOf returns the fields of a mapping that is a what. Only the known ones may be there, each once.
func fieldsOf(n *yaml.Node, what string, known ...string) (*fields, error) {
	n = resolve(n)
	if n.Kind != yaml.MappingNode {
		return nil, at(n, "%s: must be a mapping, got %s", what, shown(n))
	}
	f := &fields{node: n, named: map[string]*yaml.Node{}}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := resolve(n.Content[i])
		switch {
		case key.Kind != yaml.ScalarNode || !slices.Contains(known, key.Value):
			return nil, at(key, "%s: has no field %s; its fields are %s", what, shown(key), strings.Join(known, ", "))
		case f.named[key.Value] != nil:
			return nil, at(key, "%s: must be there once, got another", key.Value)
		}
		f.named[key.Value] = resolve(n.Content[i+1])
	}
	return f, nil
}

func (f *fields) at(name string) *yaml.Node { return f.named[name] }

// shown describes a value for an error.
func shown(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	if len(n.Value) > 100 {
		return strconv.Quote(n.Value[:100]) + "..."
	}
	return strconv.Quote(n.Value)
}

// scalar returns the value of a field, or nil if it is not there or null.
func (f *fields) scalar(name, kind string) (*yaml.Node, error) {
	n := f.named[name]
	switch {
	case n == nil || n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null":
		return nil, nil //nolint:nilnil // no value is valid
	case n.Kind != yaml.ScalarNode:
		return nil, at(n, "%s: must be %s, got %s", name, kind, shown(n))
	}
	return n, nil
}

// text returns a text. A number and a bool count as texts, since YAML writes the value 404 without quotes.
func (f *fields) text(name string) (string, error) {
	n, err := f.scalar(name, "a text")
	if n == nil {
		return "", err
	}
	return n.Value, nil
}

func (f *fields) bool(name string) (b bool, err error) {
	n, err := f.scalar(name, "true or false")
	if n == nil {
		return false, err
	}
	if n.ShortTag() != "!!bool" || n.Decode(&b) != nil {
		return false, at(n, "%s: must be true or false, got %s", name, shown(n))
	}
	return b, nil
}

func (f *fields) number(name string) (x uint32, err error) {
	n, err := f.scalar(name, "a number")
	if n == nil {
		return 0, err
	}
	if n.ShortTag() != "!!int" || n.Decode(&x) != nil {
		return 0, at(n, "%s: must be a whole number in 0..4294967295, got %s", name, shown(n))
	}
	return x, nil
}

func (f *fields) list(name string) (*yaml.Node, error) {
	n := f.named[name]
	switch {
	case n == nil || n.ShortTag() == "!!null":
		return nil, nil //nolint:nilnil // no list is valid
	case n.Kind != yaml.SequenceNode:
		return nil, at(n, "%s: must be a list, got %s", name, shown(n))
	}
	return n, nil
}

// replaces returns the names in the field replaces of the rule with the given name.
func (f *fields) replaces(own string) ([]string, error) {
	list, err := f.list("replaces")
	if list == nil {
		return nil, err
	}
	var names []string
	for _, item := range list.Content {
		entry, err := fieldsOf(item, "replaces", "name")
		if err != nil {
			return nil, err
		}
		name, err := entry.text("name")
		switch {
		case err != nil:
			return nil, err
		case name == "":
			return nil, at(entry.node, `replaces: name: must be set, got ""`)
		case name == own:
			return nil, at(entry.node, "replaces: name: must be of another rule, got %q", name)
		}
		names = append(names, name)
	}
	return names, nil
}
