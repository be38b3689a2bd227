package stats

import (
	"fmt"
	"iter"
	"testing"

	"github.com/stretchr/testify/require"
)

// part is an object with one metric.
type part struct{ policy string }

func (p *part) metric() Metric {
	return Metric{Name: "m", Labels: []Label{{"policy", p.policy}, {"reason", "full"}}, Of: p}
}

func (p *part) Metrics() iter.Seq[Metric] { return func(yield func(Metric) bool) { yield(p.metric()) } }

// group is a source of several objects.
type group []*part

func (g group) Metrics() iter.Seq[Metric] {
	return func(yield func(Metric) bool) {
		for _, p := range g {
			for range 2 {
				if !yield(p.metric()) {
					return
				}
			}
		}
	}
}

func TestEach(t *testing.T) {
	a, b, shared := &part{"a"}, &part{"a"}, &part{"shared"}
	sources := map[string]Source{"2": group{shared, b, a}, "1": group{a, shared}, "3": group{b, shared}, "4": group{}, "5": &part{""}}
	var got []string
	for name, m := range Each(sources) {
		got = append(got, fmt.Sprint(name, m.Labels[0].Value, m.Labels[1].Value))
	}
	require.Equal(t, []string{"1afull", "1afull", "1sharedfull", "1sharedfull", "2afull", "2afull", "5full"}, got,
		"a shared object appears once, all its metrics with it")

	got = nil
	for name, m := range Each(map[string]Source{"1": group{a, b, shared}}) {
		got = append(got, name+m.Label("policy")+m.Label("none"))
	}
	require.Equal(t, []string{"1a", "1a", "1a#2", "1a#2", "1shared", "1shared"}, got, "two objects of one name are told apart")
	require.Equal(t, "a", b.metric().Labels[0].Value, "the labels of a source are not changed")
	for range Each(sources) {
		break
	}
}

func TestKindAsText(t *testing.T) {
	for k, text := range map[Kind]string{KindGauge: "gauge", KindCounter: "counter", KindHistogram: "histogram", 3: "kind(3)"} {
		require.Equal(t, text, k.String())
		got, err := k.MarshalText()
		require.Equal(t, k <= KindHistogram, err == nil)
		require.Equal(t, err == nil, string(got) == text)
	}
}
