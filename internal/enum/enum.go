// Package enum writes the values of small enumerations as text, and reads them back.
package enum

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// String returns the name of v, or a text such as "state(7)" if it has none.
func String[T ~uint8](kind string, names []string, v T) string {
	if int(v) < len(names) {
		return names[v]
	}
	return strings.ToLower(kind[strings.LastIndexByte(kind, ' ')+1:]) + "(" + strconv.Itoa(int(v)) + ")"
}

// Marshal returns the name of v. If v has no name, the error says so; it begins with kind, such as "breaker: State".
func Marshal[T ~uint8](kind string, names []string, v T) ([]byte, error) {
	if int(v) >= len(names) {
		return nil, fmt.Errorf("%s: must be one of the named values, got %d", kind, v)
	}
	return []byte(names[v]), nil
}

// Unmarshal sets v to the value with the name text. The error lists the names, and leaves v as it was.
func Unmarshal[T ~uint8](kind string, names []string, v *T, text []byte) error {
	i := slices.Index(names, string(text))
	if i < 0 {
		return fmt.Errorf("%s: must be one of %s, got %q", kind, strings.Join(names, ", "), text)
	}
	*v = T(i)
	return nil
}
