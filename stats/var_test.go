package stats

import (
	"encoding/json"
	"expvar"
	"iter"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

type odd struct{}

func (odd) Metrics() iter.Seq[Metric] {
	return func(yield func(Metric) bool) { yield(Metric{Name: "x", Value: math.NaN()}) }
}

func TestVarIsJSON(t *testing.T) {
	var v expvar.Var = Var{"a": &part{"p"}, "none": group{}}
	require.JSONEq(t, `{"a":[{"name":"m","labels":{"policy":"p","reason":"full"},"value":0}],"none":[]}`, v.String())
	require.True(t, json.Valid([]byte(Var{"a": odd{}}.String())), "one bad figure does not break all of /debug/vars")
}

func TestVarWithoutAFiniteFigureIsAnError(t *testing.T) {
	_, err := Var{"a": odd{}}.MarshalJSON()
	require.ErrorContains(t, err, "NaN")
}
