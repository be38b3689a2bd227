package rules

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/spillway-go/spillway/internal/isnil"
)

// A Target is something that documents give numbers to. It is made by [Of].
type Target struct {
	policy      any
	least, most any
}

// Of returns the Target of a policy that can be tuned while it runs. The policy has two methods:
//
//	Options() O        // or Rule() O, or Rules() []O: the options in force, with every default filled in
//	Tune(O) error      // or Tune(...O) error: replaces them, or returns an error and changes nothing
//
// Every policy of Spillway with Tune is one, and so is a type of your own: O is a struct, or an interface that holds one. A
// third method, Check(O) (O, error), returns what Options would return after Tune, or its error, and changes nothing. With
// it, a document that one target refuses touches no other. Without it, the targets tuned before are put back. The methods
// must not call the Set.
//
// Documents can set the exported fields of O that are numbers, booleans, texts, durations, types with UnmarshalText, structs
// of these, maps to these, and slices of structs with a Name. They cannot set Name, functions, sensors, and fields with the tag
// tune:"-", which cannot change.
func Of(policy any) Target { return Target{policy: policy} }

// Between returns t with bounds that no document can cross. Both values are of the type O of [Of], and nil is none: each field
// of least that is not zero is the least value of that field, and each of most is its greatest. A field with a bound must be
// above zero, since 0 and -1 often stand for no limit. The built value is always allowed. Bounds are for numbers, durations
// and types with a method Compare, in structs.
func (t Target) Between(least, most any) Target {
	t.least, t.most = least, most
	return t
}

// A target is a Target of a Set.
type target struct {
	name        string
	options     func() reflect.Value
	checkWith   func([]reflect.Value) []reflect.Value // nil if there is no Check
	tuneWith    func([]reflect.Value) []reflect.Value
	built       value
	least, most reflect.Value // structs like built, or invalid

	stage    *Stage  // nil if there is none
	next     *target // the other policy of the Stage
	enforced float64 // fraction of the requests that next decides about; guarded by Set.changing
}

func newTarget(name string, from Target) (*target, error) {
	stage, ok := from.policy.(*Stage)
	if !ok || stage == nil {
		return newPlainTarget(name, from)
	}
	from.policy = stage.inForce
	t, err := newPlainTarget(name, from)
	if err != nil {
		return nil, err
	}
	from.policy = stage.next
	t.stage = stage
	if t.next, err = newPlainTarget("stage."+name, from); err == nil && !reflect.DeepEqual(t.built.export(), t.next.built.export()) {
		err = errors.New("both policies of a Stage must have the same options")
	}
	return t, err
}

func newPlainTarget(name string, from Target) (*target, error) {
	if isnil.Is(from.policy) {
		return nil, errors.New("the policy must be set, got nil")
	}
	// The linker keeps methods whose names are constants here, and drops others.
	v := reflect.ValueOf(from.policy)
	options := v.MethodByName("Options")
	if !options.IsValid() {
		options = v.MethodByName("Rule")
	}
	if !options.IsValid() {
		options = v.MethodByName("Rules")
	}
	tune, check := v.MethodByName("Tune"), v.MethodByName("Check")
	if !options.IsValid() || !tune.IsValid() {
		return nil, fmt.Errorf("%T must have the methods Options, Rule or Rules, and Tune", from.policy)
	}
	o, in := options.Type(), tune.Type()
	if o.NumIn() != 0 || o.NumOut() != 1 || in.NumIn() != 1 || in.In(0) != o.Out(0) || in.NumOut() != 1 || in.Out(0) != reflect.TypeFor[error]() {
		return nil, fmt.Errorf("%T must have methods like Options() O and Tune(O) error, got %v and %v", from.policy, o, in)
	}
	t := &target{name: name, options: func() reflect.Value { return options.Call(nil)[0] }, tuneWith: tune.Call}
	if check.IsValid() && check.Type().NumIn() == 1 && check.Type().In(0) == o.Out(0) && check.Type().NumOut() == 2 &&
		check.Type().Out(0) == o.Out(0) && check.Type().Out(1) == reflect.TypeFor[error]() {
		t.checkWith = check.Call
	}
	if in.IsVariadic() {
		t.tuneWith = tune.CallSlice
		if t.checkWith != nil {
			t.checkWith = check.CallSlice
		}
	}
	first := t.options()
	if first.Kind() == reflect.Interface {
		first = first.Elem()
	}
	if f := formFor(first); f != record && f != named {
		return nil, fmt.Errorf("the options of %T must be a struct, got %v", from.policy, o.Out(0))
	}
	t.built = copyOf(first)
	if formFor(first) == named {
		names := map[string]bool{"": true}
		for i := range first.Len() {
			_, name := element(first, i)
			if names[name] {
				return nil, fmt.Errorf("each rule of %T must have a Name of its own, got %q", from.policy, name)
			}
			names[name] = true
		}
	}
	var err error
	if t.least, err = t.bound("least", from.least); err == nil {
		t.most, err = t.bound("most", from.most)
	}
	return t, err
}

func formFor(v reflect.Value) form {
	if !v.IsValid() {
		return code
	}
	return formOf(v.Type())
}

// bound checks one side of the bounds.
func (t *target) bound(side string, given any) (reflect.Value, error) {
	v := reflect.ValueOf(given)
	if given == nil {
		return v, nil
	}
	if v.Type() != t.built.Type() || v.Kind() != reflect.Struct {
		return v, fmt.Errorf("Between: %s must be a struct of the type %v, got %T", side, t.built.Type(), given)
	}
	var walk func(v reflect.Value, path string) error
	walk = func(v reflect.Value, path string) error {
		for i := range v.NumField() {
			f, at := v.Field(i), join(path, v.Type().Field(i).Name)
			if f.IsZero() {
				continue
			}
			if formOf(f.Type()) == record && v.Type().Field(i).IsExported() {
				if err := walk(f, at); err != nil {
					return err
				}
			} else if _, ok := compare(f, f); !ok {
				return fmt.Errorf("Between: %s: the field %s cannot have bounds", side, at)
			}
		}
		return nil
	}
	return v, walk(v, "")
}

// compare compares two values of one type that has an order.
func compare(a, b reflect.Value) (order int, ok bool) {
	switch formOf(a.Type()) {
	case duration, integer:
		return cmp.Compare(a.Int(), b.Int()), true
	case unsigned:
		return cmp.Compare(a.Uint(), b.Uint()), true
	case float:
		return cmp.Compare(a.Float(), b.Float()), true
	case textual:
		m := a.MethodByName("Compare")
		if !m.IsValid() || m.Type().NumIn() != 1 || m.Type().In(0) != a.Type() || m.Type().NumOut() != 1 || m.Type().Out(0).Kind() != reflect.Int {
			return 0, false
		}
		return int(m.Call([]reflect.Value{b})[0].Int()), true
	}
	return 0, false
}

// within returns an error that names the first field of v outside the bounds.
func (t *target) within(v value) error {
	var walk func(v, built, least, most reflect.Value, path string) error
	walk = func(v, built, least, most reflect.Value, path string) error {
		all := fields(v)
		for _, name := range slices.Sorted(maps.Keys(all)) {
			low, high := boundOf(least, name), boundOf(most, name)
			f, at := all[name], join(path, name)
			if !low.IsValid() && !high.IsValid() {
				continue
			}
			if formOf(f.Type()) == record {
				if err := walk(f, built.FieldByName(name), low, high, at); err != nil {
					return err
				}
			} else if !allowed(f, built.FieldByName(name), low, high) {
				return fmt.Errorf("rules: %s must be %s, got %v", at, bounds(low, high), value{f}.export())
			}
		}
		return nil
	}
	if !t.least.IsValid() && !t.most.IsValid() {
		return nil
	}
	return walk(v.Value, t.built.Value, t.least, t.most, t.name)
}

func allowed(f, built, low, high reflect.Value) bool {
	if order, _ := compare(f, built); order == 0 {
		return true
	}
	if order, _ := compare(f, reflect.Zero(f.Type())); order <= 0 {
		return false
	}
	tooLow, tooHigh := 0, 0
	if low.IsValid() {
		tooLow, _ = compare(f, low)
	}
	if high.IsValid() {
		tooHigh, _ = compare(f, high)
	}
	return tooLow >= 0 && tooHigh <= 0
}

// bounds returns the bounds of a field as text.
func bounds(low, high reflect.Value) string {
	switch {
	case !low.IsValid():
		return fmt.Sprintf("above 0 and at most %v", value{high}.export())
	case !high.IsValid():
		return fmt.Sprintf("at least %v", value{low}.export())
	}
	return fmt.Sprintf("in %v..%v", value{low}.export(), value{high}.export())
}

// read returns the options in force.
func (t *target) read() value {
	v := t.options()
	if v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	return copyOf(v)
}

// validate returns the error that set would return, as far as it is known beforehand.
func (t *target) validate(want value) (err error) {
	defer caught(&err, t.name)
	effective := want
	if t.checkWith != nil {
		out := t.checkWith([]reflect.Value{want.Value})
		if err, _ := reflect.TypeAssert[error](out[1]); err != nil {
			return fmt.Errorf("rules: %s: %w", t.name, err)
		}
		v := out[0]
		if v.Kind() == reflect.Interface {
			v = v.Elem()
		}
		effective = copyOf(v)
	}
	return t.within(effective)
}

// change tunes the target if it has other numbers. It returns the options to put back, which are not valid if there are none,
// and a line for each number that has changed.
func (t *target) change(want value) (was value, lines []string, err error) {
	defer caught(&err, t.name)
	now := t.read()
	if reflect.DeepEqual(now.export(), want.export()) {
		return was, nil, nil
	}
	if err := t.tune(want); err != nil {
		return was, nil, err
	}
	was = now
	is := t.read()
	return was, difference(t.name, was, is), t.within(is)
}

func (t *target) tune(want value) (err error) {
	defer caught(&err, t.name)
	if err, _ := reflect.TypeAssert[error](t.tuneWith([]reflect.Value{want.Value})[0]); err != nil {
		return fmt.Errorf("rules: %s: %w", t.name, err)
	}
	return nil
}
