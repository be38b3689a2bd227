package rules

import (
	"encoding/json"
	"reflect"
)

type object = map[string]any

// Schema returns the JSON Schema (draft 7) of the documents of this Set, with the built values as defaults, for editors and for
// checks before a document is deployed. It accepts every valid document, and some that a target refuses: [Set.Check] has
// the last word.
func (s *Set) Schema() []byte {
	targets, staged := object{}, object{}
	for _, t := range s.targets {
		targets[t.name] = t.built.schema(t.least, t.most)
		if t.stage != nil {
			staged[t.name] = targets[t.name]
		}
	}
	fields := object{
		"$schema": object{"type": "string"},
		"schema":  object{"const": schemaVersion},
		"note":    object{"type": "string", "maxLength": maxNote, "description": "What this version is for. It is shown in the log."},
		"rules":   objectOf(targets),
	}
	if len(staged) > 0 {
		fields["stage"] = objectOf(object{"enforce": object{"type": "number", "minimum": 0, "maximum": 1}, "rules": objectOf(staged)})
	}
	root := objectOf(fields)
	root["$schema"], root["required"] = "http://json-schema.org/draft-07/schema#", []string{"rules"}
	return indented(root)
}

func objectOf(properties object) object {
	return object{"type": "object", "additionalProperties": false, "properties": properties}
}

// Document returns the numbers in force as a document: the beginning of a file.
func (s *Set) Document() []byte {
	s.changing.Lock()
	defer s.changing.Unlock()
	targets, staged, enforce := object{}, object{}, 0.0
	for _, t := range s.targets {
		targets[t.name] = t.read().export()
		if t.stage == nil {
			continue
		}
		if next := t.next.read().export(); t.enforced > 0 || !reflect.DeepEqual(next, targets[t.name]) {
			staged[t.name], enforce = next, t.enforced
		}
	}
	out := object{"schema": schemaVersion, "rules": targets}
	if len(staged) > 0 {
		out["stage"] = object{"enforce": enforce, "rules": staged}
	}
	return indented(out)
}

func indented(v any) []byte {
	b, _ := json.MarshalIndent(v, "", "  ") //nolint:errchkjson // maps, texts and finite numbers
	return append(b, '\n')
}

// schema returns the schema of a value, whose bounds are not valid if there are none.
func (v value) schema(least, most reflect.Value) object {
	out := object{}
	properties := object{}
	f := formOf(v.Type())
	switch f {
	case record:
		for name, field := range fields(v.Value) {
			properties[name] = value{field}.schema(boundOf(least, name), boundOf(most, name))
		}
	case named:
		for i := range v.Len() {
			e, name := element(v.Value, i)
			properties[name] = copyOf(e).schema(reflect.Value{}, reflect.Value{})
		}
	case dict:
		of := value{reflect.New(v.Type().Elem()).Elem()}.schema(reflect.Value{}, reflect.Value{})
		delete(of, "default")
		return object{"type": "object", "additionalProperties": of, "default": v.export()}
	case duration:
		out = object{"type": "string", "pattern": `^(off|0|[-+]?([0-9]+(\.[0-9]*)?(ns|us|µs|ms|s|m|h))+)$`}
	case textual, plain:
		out["type"] = "string"
	case boolean:
		out["type"] = "boolean"
	case unsigned:
		out = object{"type": "integer", "minimum": 0}
	case integer, float:
		out["type"] = []string{map[bool]string{true: "number", false: "integer"}[f == float], "string"}
		out["pattern"] = "^off$"
	}
	if f == record || f == named {
		return objectOf(properties)
	}
	out["default"] = v.export()
	if !least.IsValid() && !most.IsValid() {
		return out
	}
	out["description"] = "The default, or " + bounds(least, most) + "."
	if f == duration || f == textual || !allowed(v.Value, reflect.Zero(v.Type()), least, most) {
		return out // JSON Schema has no words for it
	}
	out["exclusiveMinimum"] = 0
	if least.IsValid() {
		out["minimum"] = least.Interface()
	}
	if most.IsValid() {
		out["maximum"] = most.Interface()
	}
	return out
}

// boundOf returns the field of a struct of bounds, or a value that is not valid if there is no bound.
func boundOf(of reflect.Value, name string) reflect.Value {
	if !of.IsValid() || of.FieldByName(name).IsZero() {
		return reflect.Value{}
	}
	return of.FieldByName(name)
}
