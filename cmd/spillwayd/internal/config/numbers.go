package config

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
)

// ShedderTarget is the name of the shedder as a target of package rules. Routes have further targets for their limits.
const ShedderTarget = "shedder"

// RateTarget returns the name of the target, and of the policy, for the rate of a route.
func RateTarget(route string) string { return route + ".rate" }

// ConcurrencyTarget returns the name for the concurrency of a route.
func ConcurrencyTarget(route string) string { return route + ".concurrency" }

// QuotaTarget returns the name for a quota of a route.
func QuotaTarget(route string, q *Quota) string { return route + "." + q.Per + "." + q.Every }

// Document returns the numbers of c as a document of package rules. Every number is in it, so that a field that the file
// omits has its default.
func (c *Config) Document() ([]byte, error) {
	s := &c.Shedder
	targets := map[string]map[string]any{
		ShedderTarget: {
			"SLO": s.SLO.String(), "CPUThreshold": s.CPUThreshold, "MinLimit": s.MinLimit, "MaxLimit": s.MaxLimit,
			"MaxQueue": s.MaxQueue, "MaxWait": s.MaxWait.String(), "FairRoutes": s.FairRoutes, "Disabled": s.Disabled,
		},
	}
	for i := range c.Routes {
		r := &c.Routes[i]
		if l := r.Rate; l != nil && l.Tunable() {
			numbers := map[string]any{"Rate": l.Rate, "Burst": l.Burst}
			if l.MaxWait > 0 {
				numbers = map[string]any{"Rate": l.Rate, "Slack": l.Burst, "MaxWait": l.MaxWait.String(), "MaxQueue": l.MaxQueue}
			}
			targets[RateTarget(r.Name)] = numbers
		}
		for j := range r.Quotas {
			targets[QuotaTarget(r.Name, &r.Quotas[j])] = map[string]any{"Limit": r.Quotas[j].Limit}
		}
		if r.Concurrency != nil {
			targets[ConcurrencyTarget(r.Name)] = map[string]any{"Limit": r.Concurrency.Limit}
		}
	}
	return json.Marshal(map[string]any{"rules": targets})
}

// Follow returns a function that reads later contents of the file of c as documents of package rules. It refuses a content
// that changes anything but numbers, because that needs a restart.
func (c *Config) Follow() func(data []byte) ([]byte, error) {
	built := c.structure()
	return func(data []byte) ([]byte, error) {
		next, err := Parse(data)
		if err != nil {
			return nil, err
		}
		if path := differs(reflect.ValueOf(built), reflect.ValueOf(next.structure()), ""); path != "" {
			return nil, fmt.Errorf("%s: a change needs a restart", path)
		}
		return next.Document()
	}
}

// structure returns a copy of c without its numbers.
func (c *Config) structure() Config {
	out := *c
	out.Shedder = Shedder{}
	out.Routes = make([]Route, len(c.Routes))
	for i, r := range c.Routes {
		if l := r.Rate; l != nil && l.Tunable() {
			r.Rate = &Rate{Per: l.Per, Shared: l.Shared, MaxWait: min(l.MaxWait, 1)} // whether requests wait is no number
		}
		r.Quotas = slices.Clone(r.Quotas)
		for j := range r.Quotas {
			r.Quotas[j].Limit = 0
		}
		if r.Concurrency != nil {
			r.Concurrency = &Concurrency{Per: r.Concurrency.Per, Shared: r.Concurrency.Shared}
		}
		out.Routes[i] = r
	}
	return out
}

// differs returns the path of the first field in which two structures differ, or "".
func differs(a, b reflect.Value, path string) string {
	if reflect.DeepEqual(a.Interface(), b.Interface()) {
		return ""
	}
	switch {
	case a.Kind() == reflect.Struct && a.NumField() > 0 && a.Type().Field(0).Tag.Get("conf") != "":
		for i := range a.NumField() {
			if at := differs(a.Field(i), b.Field(i), join(path, a.Type().Field(i).Tag.Get("conf"))); at != "" {
				return at
			}
		}
	case a.Kind() == reflect.Pointer && !a.IsNil() && !b.IsNil():
		return differs(a.Elem(), b.Elem(), path)
	case a.Kind() == reflect.Slice && a.Len() == b.Len():
		for i := range a.Len() {
			if at := differs(a.Index(i), b.Index(i), fmt.Sprintf("%s[%d]", path, i)); at != "" {
				return at
			}
		}
	}
	return path
}
