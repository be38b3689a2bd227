// Package yaml lets package rules follow documents in YAML.
//
//	w, err := set.Follow(rules.File("/etc/shop/rules.yaml"), &rules.Options{Decode: yaml.JSON})
//
// A document has the same fields as in JSON:
//
//	note: sale
//	rules:
//	  api: {SLO: 250ms}
//	  tenants:
//	    Rate: 100/s
//	    Burst: 200
//
// It is one YAML document of plain values, without anchors, aliases and tags of its own, which hide what a document says. As in
// YAML 1.2, "off", "on", "yes" and "no" are texts. A key that stands twice is an error.
//
// The beginning of a YAML document can be a valid document. So replace files by a rename, as a ConfigMap does: a writer that
// stops halfway then changes nothing.
package yaml

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"

	"go.yaml.in/yaml/v3"
)

// JSON returns a YAML document as JSON, in the same order. An empty document stays empty. The error names the line. JSON may be
// called concurrently.
func JSON(document []byte) ([]byte, error) {
	d := yaml.NewDecoder(bytes.NewReader(document))
	var root, more yaml.Node
	switch err := d.Decode(&root); {
	case errors.Is(err, io.EOF):
		return nil, nil
	case err != nil:
		return nil, err
	}
	if err := d.Decode(&more); err == nil {
		return nil, fmt.Errorf("yaml: line %d: there must be one document", more.Line)
	} else if !errors.Is(err, io.EOF) {
		return nil, err
	}
	var out bytes.Buffer
	if err := write(&out, &root, 0); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

const maxDepth = 100

// write appends a node as JSON.
func write(out *bytes.Buffer, n *yaml.Node, depth int) error {
	switch {
	case depth > maxDepth:
		return fmt.Errorf("yaml: line %d: deeper than %d levels", n.Line, maxDepth)
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		return fmt.Errorf("yaml: line %d: a document must not have anchors and aliases", n.Line)
	}
	switch n.Kind {
	case yaml.DocumentNode:
		return write(out, n.Content[0], depth)
	case yaml.MappingNode, yaml.SequenceNode:
		return writeAll(out, n, depth)
	}
	v, err := scalar(n)
	if err != nil {
		return fmt.Errorf("yaml: line %d: %w", n.Line, err)
	}
	text, err := json.Marshal(v)
	out.Write(text)
	return err
}

// writeAll appends a mapping or a sequence.
func writeAll(out *bytes.Buffer, n *yaml.Node, depth int) error {
	keyed := n.Kind == yaml.MappingNode
	brackets := "[]"
	if keyed {
		brackets = "{}"
	}
	seen := map[string]bool{}
	out.WriteByte(brackets[0])
	for i, e := range n.Content {
		key := keyed && i%2 == 0
		switch {
		case key && (e.Kind != yaml.ScalarNode || e.ShortTag() != "!!str"):
			return fmt.Errorf("yaml: line %d: a key must be a text, got %q", e.Line, e.Value)
		case key && seen[e.Value]:
			return fmt.Errorf("yaml: line %d: duplicate key %q", e.Line, e.Value)
		}
		if key {
			seen[e.Value] = true
		}
		switch {
		case keyed && !key:
			out.WriteByte(':')
		case i > 0:
			out.WriteByte(',')
		}
		if err := write(out, e, depth+1); err != nil {
			return err
		}
	}
	out.WriteByte(brackets[1])
	return nil
}

// scalar returns the value of a plain node: a text, a bool, a number or nil.
func scalar(n *yaml.Node) (v any, err error) {
	switch tag := n.ShortTag(); tag {
	case "!!str", "!!timestamp":
		return n.Value, nil
	case "!!null", "!!bool", "!!int", "!!float":
		err = n.Decode(&v)
	default:
		err = fmt.Errorf("a value must be a text, a number, true, false or null, got %s", tag)
	}
	if f, ok := v.(float64); ok && (math.IsNaN(f) || math.IsInf(f, 0)) {
		err = fmt.Errorf("a number must be finite, got %s", n.Value)
	}
	return v, err
}
