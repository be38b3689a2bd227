package yaml_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/rules"
	"github.com/spillway-go/spillway/rules/yaml"
)

func TestJSON(t *testing.T) {
	for document, want := range map[string]string{
		"":                         "",
		"# nothing\n":              "",
		"a: 1":                     `{"a":1}`,
		"b: {}\na: []":             `{"b":{},"a":[]}`,
		"a: 250ms\nb: 100/s":       `{"a":"250ms","b":"100/s"}`,
		"a: off\nb: on\nc: yes":    `{"a":"off","b":"on","c":"yes"}`,
		"a: true\nb: null\nc:":     `{"a":true,"b":null,"c":null}`,
		"a: 0x10\nb: 1_000\nc: .5": `{"a":16,"b":1000,"c":0.5}`,
		"a: '1'\nb: \"x\\ty\"":     `{"a":"1","b":"x\ty"}`,
		"a: [1, x]\nb: -1e3":       `{"a":[1,"x"],"b":-1000}`,
		"a: 2026-11-23":            `{"a":"2026-11-23"}`,
		"'1': x\n\"true\": y":      `{"1":"x","true":"y"}`,
		"--- \na: 1\n...\n":        `{"a":1}`,
		`{"a": {"b": [1, "x"]}}`:   `{"a":{"b":[1,"x"]}}`,
		"a: |\n  x\n  y":           `{"a":"x\ny"}`,
		"just text":                `"just text"`,
		"a: 18446744073709551615":  `{"a":18446744073709551615}`,
	} {
		got, err := yaml.JSON([]byte(document))
		require.NoError(t, err, document)
		require.Equal(t, want, string(got), document)
	}
	for document, want := range map[string]string{
		"a: 1\nb: 2\na: 3":           `yaml: line 3: duplicate key "a"`,
		"a: &x 1\nb: *x":             "yaml: line 1: a document must not have anchors and aliases",
		"b: 1\na: {<<: {b: 1}}":      `yaml: line 2: a key must be a text, got "<<"`,
		"1: x":                       `yaml: line 1: a key must be a text, got "1"`,
		"[a]: x":                     "yaml: line 1: a key must be a text",
		"a: !secret x":               "yaml: line 1: a value must be a text, a number, true, false or null, got !secret",
		"a: !!binary eA==":           "got !!binary",
		"a: .inf":                    "yaml: line 1: a number must be finite, got .inf",
		"\na: .nan":                  "yaml: line 2: a number must be finite, got .nan",
		"a: 1\n---\na: 2":            "there must be one document",
		"a: {":                       "yaml: line 1:",
		"a: 1\n\tb: 2":               "yaml: line 2:",
		strings.Repeat("[", 200):     "yaml:",
		strings.Repeat("- ", 200):    "deeper than 100 levels",
		"a: !!int twelve":            "yaml: line 1:",
		"a: 1\n...\nb: 2\n...\n}\n[": "yaml:",
	} {
		_, err := yaml.JSON([]byte(document))
		require.ErrorContains(t, err, want, document)
	}
}

func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := spillway.Must(limiter.New(limiter.Bucket{Rate: limiter.Per(10, time.Second)}))
		set := spillway.Must(rules.New(map[string]rules.Target{"api": rules.Of(lim)}))
		var text atomic.Value
		text.Store("rules:\n  api: {Rate: 100/s, Burst: 5}\n")
		read := func(context.Context) ([]byte, error) { return []byte(text.Load().(string)), nil }
		w, err := set.Follow(read, &rules.Options{Decode: yaml.JSON})
		require.NoError(t, err)
		defer w.Close()
		burst := func() int { return lim.Rule().(limiter.Bucket).Burst }
		require.Equal(t, 5, burst())

		text.Store("rules:\n  api: {Rate: 100/s, Burst: 5}\n# only a remark\n")
		time.Sleep(2500 * time.Millisecond)
		require.Len(t, set.Versions(), 2)

		text.Store("rules:\n  api: {Rate: 100/s, Burst: 6, Burst: 7}\n")
		time.Sleep(5200 * time.Millisecond)
		require.Len(t, set.Versions(), 3, "one entry for each bad document")
		require.EqualError(t, set.Stats().Err, `yaml: line 2: duplicate key "Burst"`)
		require.Equal(t, 5, burst())

		text.Store("")
		time.Sleep(2500 * time.Millisecond)
		require.EqualError(t, set.Stats().Err, "rules: the document is empty")
		text.Store("rules:\n  api: {Burst: 8}\n")
		time.Sleep(2500 * time.Millisecond)
		require.Equal(t, 8, burst())
		require.NoError(t, set.Pin(1))
		require.Equal(t, 5, burst())
	})
}

func FuzzJSON(f *testing.F) {
	f.Add([]byte("rules:\n  api: {Rate: 100/s, Burst: 5}\n"))
	f.Add([]byte("a: &x [1, .5, 0x1f]\nb: *x"))
	f.Fuzz(func(t *testing.T, document []byte) {
		out, err := yaml.JSON(document)
		if err == nil && len(out) > 0 && !json.Valid(out) {
			t.Errorf("%q becomes %q", document, out)
		}
	})
}

func ExampleJSON() {
	document, err := yaml.JSON([]byte("note: sale\nrules:\n  tenants: {Rate: 100/s, Burst: 200}"))
	fmt.Println(string(document), err)
	// Output:
	// {"note":"sale","rules":{"tenants":{"Rate":"100/s","Burst":200}}} <nil>
}
