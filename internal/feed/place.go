package feed

import (
	"fmt"
	"math"
	"reflect"
	"time"

	"github.com/spillway-go/spillway/stats"
)

// A place says where a struct has the field of a [Row]. It is looked up once, because a search by name takes longer than
// the rest of a metric.
type place struct {
	of      reflect.Type
	index   []int
	name    []int // of the field Name; nil if there is none
	refusal [3]int
}

// in returns the place of the field of r in a struct. It panics if there is none, or if its type does not fit. The tests of
// each package with a table would find that.
func (r *Row) in(of reflect.Type) *place {
	p := r.place.Load()
	if p != nil && p.of == of {
		return p
	}
	field, ok := of.FieldByName(r.field)
	if !ok {
		panic(fmt.Sprintf("feed: %s has no field %s", of, r.field))
	}
	p = &place{of: of, index: field.Index}
	if name, ok := of.FieldByName("Name"); ok {
		p.name = name.Index
	}
	fits := true
	switch r.shape {
	case byReason:
		for i, name := range [...]string{"Policy", "Reason", "Count"} {
			f, ok := field.Type.Elem().FieldByName(name)
			if fits = fits && ok; fits {
				p.refusal[i] = f.Index[0]
			}
		}
	case histogram:
		fits = field.Type == reflect.TypeFor[stats.Distribution]()
	case byKey:
		fits = field.Type == reflect.TypeFor[map[string]int64]()
	}
	if !fits {
		panic(fmt.Sprintf("feed: the field %s of %s has the type %s", r.field, of, field.Type))
	}
	r.place.Store(p)
	return p
}

// A refusal is a count of refusals by one policy for one reason.
type refusal struct {
	policy, reason string
	count          int64
}

// refusals returns the elements of v, in which the fields of a refusal have the indexes at.
func refusals(v reflect.Value, at [3]int) []refusal {
	all := make([]refusal, v.Len())
	for i := range all {
		r := v.Index(i)
		all[i] = refusal{r.Field(at[0]).String(), r.Field(at[1]).String(), r.Field(at[2]).Int()}
	}
	return all
}

// text returns a field that is a text or an enumeration as text.
func text(v reflect.Value) string {
	if v.Kind() == reflect.String {
		return v.String()
	}
	return fmt.Sprint(v.Addr().Interface())
}

// figure returns the value of a number, a bool or a time, and whether it is known.
func figure(v reflect.Value) (f float64, known bool) {
	switch x := v.Addr().Interface().(type) { // a pointer, because a value would be copied to the heap
	case *time.Duration:
		return x.Seconds(), *x >= 0
	case *time.Time:
		return float64(x.UnixNano()) / 1e9, !x.IsZero()
	}
	switch {
	case v.CanInt():
		return float64(v.Int()), true
	case v.CanFloat():
		return v.Float(), !math.IsInf(v.Float(), 0) && !math.IsNaN(v.Float())
	}
	return truth(v.Bool()), true
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
