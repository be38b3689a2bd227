package config

import (
	"encoding"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"
)

// decode stores v, as encoding/json reads it with UseNumber, in to. It accepts no unknown field and no value of another type. The
// error names the field by its path, and the value.
func decode(v any, to reflect.Value, path string) error {
	if v == nil {
		return fmt.Errorf("%s: must not be empty", path)
	}
	if to.Type() == reflect.TypeFor[time.Duration]() {
		return decodeDuration(v, to, path)
	}
	if u, ok := reflect.TypeAssert[encoding.TextUnmarshaler](to.Addr()); ok {
		return decodeText(v, u, path)
	}
	switch to.Kind() {
	case reflect.Pointer:
		to.Set(reflect.New(to.Type().Elem()))
		return decode(v, to.Elem(), path)
	case reflect.Struct:
		return decodeStruct(v, to, path)
	case reflect.Slice:
		list, ok := v.([]any)
		if !ok {
			return mismatch(path, "a list", v)
		}
		out := reflect.MakeSlice(to.Type(), len(list), len(list))
		for i, e := range list {
			if err := decode(e, out.Index(i), fmt.Sprintf("%s[%d]", path, i)); err != nil {
				return err
			}
		}
		to.Set(out)
		return nil
	}
	return decodePlain(v, to, path)
}

func decodePlain(v any, to reflect.Value, path string) error {
	switch to.Kind() {
	case reflect.String:
		s, ok := v.(string)
		if !ok {
			return mismatch(path, "a text", v)
		}
		to.SetString(s)
	case reflect.Bool:
		b, ok := v.(bool)
		if !ok {
			return mismatch(path, "true or false", v)
		}
		to.SetBool(b)
	case reflect.Int:
		number, _ := v.(json.Number)
		n, err := number.Int64()
		if err != nil || n < 0 || n > math.MaxInt32 {
			return mismatch(path, "a whole number from 0 to 2147483647", v)
		}
		to.SetInt(n)
	case reflect.Float64:
		number, _ := v.(json.Number)
		f, err := number.Float64()
		if err != nil || f < 0 {
			return mismatch(path, "a number of at least 0", v)
		}
		to.SetFloat(f)
	default:
		return fmt.Errorf("%s: cannot be read from a file", path)
	}
	return nil
}

func decodeStruct(v any, to reflect.Value, path string) error {
	object, ok := v.(map[string]any)
	if !ok {
		return mismatch(path, "a mapping", v)
	}
	var names []string
	known := 0
	for i := range to.NumField() {
		name := to.Type().Field(i).Tag.Get("conf")
		names = append(names, name)
		field, given := object[name]
		if !given {
			continue
		}
		known++
		if err := decode(field, to.Field(i), join(path, name)); err != nil {
			return err
		}
	}
	if known == len(object) {
		return nil
	}
	first := ""
	for name := range object {
		if !slices.Contains(names, name) && (first == "" || name < first) {
			first = name
		}
	}
	return fmt.Errorf("%s: there is no such field; %s has %s", join(path, first), orFile(path), strings.Join(names, ", "))
}

func decodeDuration(v any, to reflect.Value, path string) error {
	s, _ := v.(string)
	d, err := time.ParseDuration(s)
	if v == json.Number("0") {
		d, err = 0, nil
	}
	if err != nil || d < 0 {
		return mismatch(path, `a duration such as "250ms", at least 0`, v)
	}
	to.SetInt(int64(d))
	return nil
}

func decodeText(v any, to encoding.TextUnmarshaler, path string) error {
	var s string
	switch v := v.(type) {
	case string:
		s = v
	case json.Number:
		s = v.String()
	default:
		return mismatch(path, "a text", v)
	}
	if err := to.UnmarshalText([]byte(s)); err != nil {
		return fmt.Errorf("%s: %w, got %q", path, err, s)
	}
	return nil
}

func mismatch(path, want string, got any) error {
	text, err := json.Marshal(got)
	if err != nil {
		text = fmt.Append(nil, got)
	}
	const most = 60
	if len(text) > most {
		text = append(text[:most], "..."...)
	}
	return fmt.Errorf("%s: must be %s, got %s", path, want, text)
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func orFile(path string) string {
	if path == "" {
		return "the file"
	}
	return path
}
