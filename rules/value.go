package rules

import (
	"cmp"
	"encoding"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A value is the options of a target: a struct, or a slice of structs with names. It can be set.
type value struct{ reflect.Value }

// copyOf returns a value of its own for the options that a target returned.
func copyOf(v reflect.Value) value {
	own := reflect.New(v.Type()).Elem()
	own.Set(v)
	return value{own}
}

// clone returns a copy. Maps and slices stay shared, and assign replaces them whole.
func (v value) clone() value { return copyOf(v.Value) }

// A form says how documents write a Go type.
type form uint8

const (
	code     form = iota // a function, a sensor, a pointer: not in documents
	duration             // text such as "250ms"
	textual              // what UnmarshalText reads, such as "100/s"
	boolean
	integer
	unsigned
	float
	plain  // text
	dict   // a map from text to one of the above
	record // a struct: an object
	named  // a slice of structs with a field Name: an object with a field for each name
)

func formOf(t reflect.Type) form {
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return duration
	case reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) && t.Implements(reflect.TypeFor[encoding.TextMarshaler]()):
		return textual
	case t.Kind() == reflect.Struct:
		return record
	case t.Kind() == reflect.Slice && (t.Elem().Kind() == reflect.Struct || t.Elem().Kind() == reflect.Interface):
		return named
	case t.Kind() == reflect.Map && t.Key().Kind() == reflect.String:
		if f := formOf(t.Elem()); f == code || f > plain {
			return code
		}
		return dict
	case t.PkgPath() != "": // the constants of another package
		return code
	}
	switch t.Kind() {
	case reflect.Bool:
		return boolean
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return integer
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return unsigned
	case reflect.Float32, reflect.Float64:
		return float
	case reflect.String:
		return plain
	}
	return code
}

// fields returns the fields of a struct that documents have, by name. A Name is structure, because metrics carry it.
func fields(v reflect.Value) map[string]reflect.Value {
	out := map[string]reflect.Value{}
	for i := range v.NumField() {
		if f := v.Type().Field(i); f.IsExported() && f.Name != "Name" && f.Tag.Get("tune") != "-" && formOf(f.Type) != code {
			out[f.Name] = v.Field(i)
		}
	}
	return out
}

// element returns the struct in a slice at i, and its field Name, or "" if there is none.
func element(v reflect.Value, i int) (e reflect.Value, name string) {
	if e = v.Index(i); e.Kind() == reflect.Interface {
		e = e.Elem()
	}
	if e.Kind() == reflect.Struct {
		if n := e.FieldByName("Name"); n.IsValid() && n.Kind() == reflect.String {
			name = n.String()
		}
	}
	return e, name
}

// assign gives v the fields that a document has for it.
func (v value) assign(from any, path string) error {
	object, isObject := from.(map[string]any)
	switch f := formOf(v.Type()); {
	case f < dict:
		return v.assignOne(f, from, path)
	case !isObject:
		return fmt.Errorf("rules: %s must be an object, got %s", path, text(from))
	case f == dict:
		made := reflect.MakeMapWithSize(v.Type(), len(object))
		for _, key := range slices.Sorted(maps.Keys(object)) {
			e := value{reflect.New(v.Type().Elem()).Elem()}
			if err := e.assign(object[key], join(path, key)); err != nil {
				return err
			}
			made.SetMapIndex(reflect.ValueOf(key).Convert(v.Type().Key()), e.Value)
		}
		v.Set(made)
		return nil
	case f == named:
		return v.assignNamed(object, path)
	}
	known := fields(v.Value)
	for _, key := range slices.Sorted(maps.Keys(object)) {
		field, ok := known[key]
		if !ok {
			return unknown(v.Type(), key, path)
		}
		if err := (value{field}).assign(object[key], join(path, key)); err != nil {
			return err
		}
	}
	return nil
}

// assignNamed changes a copy of a slice, element by element.
func (v value) assignNamed(object map[string]any, path string) error {
	list := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
	known := map[string]bool{"": true}
	for i := range list.Len() {
		e, name := element(v.Value, i)
		own := copyOf(e)
		if from, given := object[name]; given && !known[name] {
			if err := own.assign(from, join(path, name)); err != nil {
				return err
			}
		}
		known[name] = true
		list.Index(i).Set(own.Value)
	}
	for _, key := range slices.Sorted(maps.Keys(object)) {
		if !known[key] || key == "" {
			return fmt.Errorf("rules: %s has no element %q", path, key)
		}
	}
	v.Set(list)
	return nil
}

// assignOne sets a value that is no object.
func (v value) assignOne(f form, from any, path string) error {
	number, _ := from.(json.Number)
	word, isText := from.(string)
	if word == off && (f == duration || f == integer || f == float) {
		word, number = "-1ns", "-1"
	}
	must, err := "", error(nil)
	switch f {
	case duration:
		var d time.Duration
		d, err = time.ParseDuration(word)
		v.SetInt(int64(d))
		must = `a duration such as "250ms"`
	case textual:
		if isText {
			to, _ := reflect.TypeAssert[encoding.TextUnmarshaler](v.Addr()) // formOf checks it
			if err := to.UnmarshalText([]byte(word)); err != nil {
				return fmt.Errorf("rules: %s: %w", path, err)
			}
		}
		must = "a text"
	case plain:
		v.SetString(word)
		must = "a text"
	case boolean:
		v.SetBool(from == true)
		must = "true or false"
	case integer:
		var n int64
		n, err = strconv.ParseInt(string(number), 10, v.Type().Bits())
		v.SetInt(n)
		must = "a whole number"
	case unsigned:
		var n uint64
		n, err = strconv.ParseUint(string(number), 10, v.Type().Bits())
		v.SetUint(n)
		must = "a whole number, not negative"
	case float:
		var n float64
		n, err = strconv.ParseFloat(string(number), v.Type().Bits())
		v.SetFloat(n)
		must = "a number"
	}
	_, isBool := from.(bool)
	if err != nil || f == boolean && !isBool || (f == textual || f == plain) && !isText {
		return fmt.Errorf("rules: %s must be %s, got %s", path, must, text(from))
	}
	return nil
}

// off is the text of -1, which package after package calls Off.
const off = "off"

// unknown returns the error for a field that documents cannot set.
func unknown(t reflect.Type, key, path string) error {
	if f, ok := t.FieldByName(key); ok && f.IsExported() {
		return fmt.Errorf("rules: %s is set in code, and a document cannot change it", join(path, key))
	}
	f, ok := t.FieldByNameFunc(func(name string) bool { return strings.EqualFold(name, key) })
	if ok && f.IsExported() {
		return fmt.Errorf("rules: %s has no field %q; did you mean %q?", path, key, f.Name)
	}
	return fmt.Errorf("rules: %s has no field %q", path, key)
}

// export returns v as documents write it: maps, texts, numbers.
func (v value) export() any {
	out := map[string]any{}
	switch formOf(v.Type()) {
	case record:
		for name, f := range fields(v.Value) {
			out[name] = value{f}.export()
		}
		return out
	case named:
		for i := range v.Len() {
			e, name := element(v.Value, i)
			out[name] = copyOf(e).export()
		}
		return out
	case dict:
		for key, e := range v.Seq2() {
			out[key.String()] = value{e}.export()
		}
		return out
	case duration:
		if v.Int() == -1 {
			return off
		}
		return time.Duration(v.Int()).String()
	case textual:
		from, _ := reflect.TypeAssert[encoding.TextMarshaler](v.Value) // formOf checks it
		b, err := from.MarshalText()
		if err != nil {
			return err.Error()
		}
		return string(b)
	case float:
		if f := v.Float(); math.IsInf(f, 0) || math.IsNaN(f) {
			return fmt.Sprint(f)
		}
	}
	return v.Interface()
}

// flatten returns the parts of an export by path.
func flatten(v any, path string, into map[string]string) map[string]string {
	object, ok := v.(map[string]any)
	if !ok {
		into[path] = fmt.Sprint(v)
	}
	for key, e := range object {
		flatten(e, join(path, key), into)
	}
	return into
}

// difference returns a line for each part that differs.
func difference(path string, a, b value) []string {
	was, is := flatten(a.export(), path, map[string]string{}), flatten(b.export(), path, map[string]string{})
	all := maps.Clone(was)
	maps.Copy(all, is)
	var out []string
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if was[key] != is[key] {
			out = append(out, fmt.Sprintf("%s: %s → %s", key, cmp.Or(was[key], "none"), cmp.Or(is[key], "none")))
		}
	}
	return out
}
