// Package isnil finds a nil pointer in an interface: constructors refuse both kinds of nil before they call a
// method.
//
//	if isnil.Is(o.Like) {
//		return nil, errors.New("limiter: Keyed: Like must be set, got nil")
//	}
package isnil

import "reflect"

// Is reports whether v is nil, or holds a nil pointer, function, map, slice, channel or interface.
func Is(v any) bool {
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Invalid:
		return true
	case reflect.Pointer, reflect.Func, reflect.Map, reflect.Slice, reflect.Chan, reflect.Interface, reflect.UnsafePointer:
		return r.IsNil()
	}
	return false
}
