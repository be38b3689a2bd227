package stats

import "encoding/json"

// A Var shows sources as JSON. It is an expvar.Var, but only programs that publish it import expvar:
//
//	expvar.Publish("spillway", stats.Var{"api": gate})
//
// As an attribute of a line of package log/slog, it reads the sources only if the line is written.
type Var map[string]Source

// String returns an object with an array of metrics for each source, as [Each] yields them, without those that name keys.
func (v Var) String() string {
	text, err := v.MarshalJSON()
	if err != nil { // a source of a user yields NaN
		text, _ = json.Marshal(map[string]string{"error": err.Error()}) //nolint:errchkjson // a text
	}
	return string(text)
}

// MarshalJSON returns what String returns, or an error if a figure is not finite.
func (v Var) MarshalJSON() ([]byte, error) {
	type metric struct {
		Name         string            `json:"name"`
		Labels       map[string]string `json:"labels,omitempty"`
		Value        float64           `json:"value"`
		Distribution *Distribution     `json:"distribution,omitempty"`
	}
	all := make(map[string][]metric, len(v))
	for source := range v {
		all[source] = []metric{}
	}
	for source, m := range Each(v) {
		if m.Label("key") != "" {
			continue
		}
		next := metric{Name: m.Name, Value: m.Value, Distribution: m.Distribution}
		for _, l := range m.Labels {
			if next.Labels == nil {
				next.Labels = map[string]string{}
			}
			next.Labels[l.Name] = l.Value
		}
		all[source] = append(all[source], next)
	}
	return json.Marshal(all) //nolint:musttag,wrapcheck // the fields of a Distribution keep their names
}
