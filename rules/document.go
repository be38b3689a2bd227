package rules

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"
)

const (
	schemaVersion = 1
	maxDocument   = 1 << 20 // bytes
	maxDepth      = 12      // of objects; options are less deep
	maxNote       = 1000    // bytes
)

// A document is the content of a JSON document.
type document struct {
	note    string
	rules   map[string]any // fields by target
	staged  map[string]any // the same, to be tried
	enforce float64        // fraction of the requests that staged decides about
}

// parse reads a document. In its values, numbers are json.Numbers.
func parse(data []byte) (doc document, err error) {
	root, err := decode(data)
	if err != nil {
		return doc, err
	}
	for key, v := range root {
		ok := true
		switch key {
		case "$schema": // for editors
			_, ok = v.(string)
		case "note":
			if doc.note, ok = v.(string); len(doc.note) > maxNote {
				return doc, fmt.Errorf("rules: note must be at most %d bytes, got %d", maxNote, len(doc.note))
			}
		case "schema":
			if v != json.Number("1") {
				return doc, fmt.Errorf("rules: schema must be %d, the only version that this program reads, got %s", schemaVersion, text(v))
			}
		case "rules":
			if doc.rules, ok = v.(map[string]any); !ok {
				return doc, fmt.Errorf("rules: rules must be an object, got %s", text(v))
			}
		case "stage":
			if err := doc.parseStage(v); err != nil {
				return doc, err
			}
		default:
			return doc, fmt.Errorf(`rules: a document has the fields "rules", "stage", "note", "schema" and "$schema", got %q`, key)
		}
		if !ok {
			return doc, fmt.Errorf("rules: %s must be a text, got %s", key, text(v))
		}
	}
	if doc.rules == nil {
		return doc, errors.New(`rules: a document must have the field "rules"`)
	}
	return doc, nil
}

// parseStage reads the field stage.
func (doc *document) parseStage(v any) (err error) {
	object, ok := v.(map[string]any)
	if !ok {
		return fmt.Errorf("rules: stage must be an object, got %s", text(v))
	}
	for key, v := range object {
		switch key {
		case "enforce":
			n, _ := v.(json.Number)
			if doc.enforce, err = n.Float64(); err != nil || !(doc.enforce >= 0 && doc.enforce <= 1) {
				return fmt.Errorf("rules: stage.enforce must be a number from 0 to 1, got %s", text(v))
			}
		case "rules":
			if doc.staged, ok = v.(map[string]any); !ok {
				return fmt.Errorf("rules: stage.rules must be an object, got %s", text(v))
			}
		default:
			return fmt.Errorf(`rules: stage has the fields "enforce" and "rules", got %q`, key)
		}
	}
	return nil
}

// decode reads a JSON object in which no key stands twice.
func decode(data []byte) (map[string]any, error) {
	switch {
	case len(data) > maxDocument:
		return nil, fmt.Errorf("rules: a document must be at most %d bytes, got %d", maxDocument, len(data))
	case len(bytes.TrimSpace(data)) == 0:
		return nil, errors.New("rules: the document is empty")
	case !utf8.Valid(data):
		return nil, errors.New("rules: the document must be UTF-8")
	}
	if err := json.Unmarshal(data, new(json.RawMessage)); err != nil {
		if bad := (*json.SyntaxError)(nil); errors.As(err, &bad) {
			err = fmt.Errorf("line %d: %w", 1+bytes.Count(data[:bad.Offset], []byte("\n")), err)
		}
		return nil, fmt.Errorf("rules: the document is not JSON: %w", err)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	v, err := decodeValue(d, "", 0)
	if err != nil {
		return nil, fmt.Errorf("rules: %w", err)
	}
	root, ok := v.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("rules: a document must be an object, got %s", text(v))
	}
	return root, nil
}

func decodeValue(d *json.Decoder, path string, depth int) (any, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	if _, opens := token.(json.Delim); opens && depth == maxDepth {
		return nil, fmt.Errorf("%s is deeper than %d levels", path, maxDepth)
	}
	switch token {
	case json.Delim('{'):
		object := map[string]any{}
		for d.More() {
			token, err := d.Token()
			if err != nil {
				return nil, err
			}
			key, _ := token.(string) // the decoder checks it
			at := join(path, key)
			if _, twice := object[key]; twice {
				return nil, fmt.Errorf("duplicate key %s", at)
			}
			if object[key], err = decodeValue(d, at, depth+1); err != nil {
				return nil, err
			}
		}
		_, err = d.Token()
		return object, err
	case json.Delim('['):
		list := []any{}
		for d.More() {
			v, err := decodeValue(d, path, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err = d.Token()
		return list, err
	}
	return token, nil
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// text returns a value as JSON for an error, cut if it is long.
func text(v any) string {
	const most = 60
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	if s := string(b); len(s) > most {
		return s[:most] + "..."
	}
	return string(b)
}
