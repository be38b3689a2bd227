package envoyrls_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/gateway/envoyrls"
)

func TestCheckNamesTheLineTheFieldAndTheValue(t *testing.T) {
	require.NoError(t, envoyrls.Check(map[string][]byte{"shop.yaml": []byte(shop)}))
	const begin = "domain: d\ndescriptors:\n"
	for file, want := range map[string]string{
		"":                               "shop.yaml: must be a YAML document: EOF",
		"a: {":                           "must be a YAML document: yaml: line 1",
		"- a":                            "line 1: file: must be a mapping, got a list",
		"descriptors: []":                `line 1: domain: must be set, got ""`,
		"domain: [a]":                    "line 1: domain: must be a text, got a list",
		"domain: d\nlimits: []":          `line 2: file: has no field "limits"; its fields are domain, descriptors`,
		"domain: d\ndomain: d":           "line 2: domain: must be there once",
		"domain: d\ndescriptors: {}":     "line 2: descriptors: must be a list, got a mapping",
		"domain: d\n---\ndomain: e":      "line 2: document: must be one in a file",
		begin + "- 7":                    `line 3: descriptor: must be a mapping, got "7"`,
		begin + "- {value: x}":           `line 3: key: must be set, got ""`,
		begin + "- {key: a}\n- {key: a}": `line 4: descriptor: must be there once, got another with key "a" and value ""`,
		begin + "- {key: a, value: x*}\n- {key: a, value: x*}":                                                       `got another with key "a" and value "x*"`,
		begin + "- {key: a, ratelimit: {}}":                                                                          `descriptor: has no field "ratelimit"; its fields are key, value, rate_limit,`,
		begin + "- {key: a, <<: {value: b}}":                                                                         `has no field "<<"`,
		begin + "- {key: a, shadow_mode: true}":                                                                      "shadow_mode: needs a rate_limit beside it, got none",
		begin + "- {key: a, shadow_mode: 1}":                                                                         `shadow_mode: must be true or false, got "1"`,
		begin + "- {key: a, share_threshold: true, value: x}":                                                        `share_threshold: needs a value that ends in *, got value "x"`,
		begin + "- {key: a, detailed_metric: true}":                                                                  "detailed_metric: must be false, got true",
		begin + "- {key: a, value_to_metric: true}":                                                                  "value_to_metric: must be false, got true",
		begin + "- {key: a, rate_limit: 5}":                                                                          `rate_limit: must be a mapping, got "5"`,
		begin + "- {key: a, rate_limit: {}}":                                                                         "requests_per_unit: must be set, got none",
		begin + "- {key: a, rate_limit: {requests_per_unit: 1}}":                                                     `unit: must be second, minute, hour, day, week, month or year, got ""`,
		begin + "- key: a\n  rate_limit:\n    unit: fortnight\n    requests_per_unit: 1":                             `line 5: unit: must be second, minute, hour, day, week, month or year, got "fortnight"`,
		begin + "- {key: a, rate_limit: {unit: unknown, requests_per_unit: 1}}":                                      `got "unknown"`,
		begin + "- {key: a, rate_limit: {unit: day, requests_per_unit: -1}}":                                         `requests_per_unit: must be a whole number in 0..4294967295, got "-1"`,
		begin + "- {key: a, rate_limit: {unit: day, requests_per_unit: 4294967296}}":                                 `got "4294967296"`,
		begin + "- {key: a, rate_limit: {unit: day, requests_per_unit: 1.5}}":                                        `got "1.5"`,
		begin + "- {key: a, rate_limit: {unit: day, requests_per_unit: many}}":                                       `got "many"`,
		begin + "- {key: a, rate_limit: {unit: day, unlimited: true}}":                                               `unit: must not be set beside unlimited, got "day"`,
		begin + "- {key: a, rate_limit: {requests_per_unit: 4, unlimited: true}}":                                    "requests_per_unit: must not be set beside unlimited, got 4",
		begin + "- {key: a, rate_limit: {unlimited: maybe}}":                                                         `unlimited: must be true or false, got "maybe"`,
		begin + "- {key: a, rate_limit: {unlimited: true, replaces: x}}":                                             `replaces: must be a list, got "x"`,
		begin + "- {key: a, rate_limit: {unlimited: true, replaces: [{name: }]}}":                                    `replaces: name: must be set, got ""`,
		begin + "- {key: a, rate_limit: {unlimited: true, name: x, replaces: [{name: x}]}}":                          `replaces: name: must be of another rule, got "x"`,
		begin + "- {key: a, rate_limit: {unlimited: true, replaces: [x]}}":                                           `replaces: must be a mapping, got "x"`,
		"domain: d\ndescriptors: " + strings.Repeat("[{key: a, descriptors: ", 40) + "[]" + strings.Repeat("}]", 40): "must be at most 32 levels deep",
		begin + "- &x {key: a, descriptors: [*x]}":                                                                   "must be at most 32 levels deep",
		"domain: d\n#" + strings.Repeat("x", 1<<20):                                                                  "must have at most 1048576 bytes, got 1048587",
		begin + "- {key: &k [a], value: b}":                                                                          "key: must be a text, got a list",
		begin + "- {key: a, ? [b] : c}":                                                                              "descriptor: has no field a list",
		begin + "- {key: a, value: " + strings.Repeat("x", 500) + ", share_threshold: true}":                         "share_threshold: needs",
	} {
		err := envoyrls.Check(map[string][]byte{"shop.yaml": []byte(file)})
		require.ErrorContains(t, err, want, file)
		require.ErrorContains(t, err, "envoyrls: shop.yaml: ")
	}
	for _, file := range []string{
		"domain: d", "domain: d\ndescriptors:", "domain: 7\ndescriptors: []", begin + "- key: a",
		begin + "- &x {key: a, rate_limit: &r {unit: day, requests_per_unit: 1}}\n- {key: b, rate_limit: *r}\n- {key: c, descriptors: [*x]}",
		begin + "- {key: a, value: true, rate_limit: {unit: Day, requests_per_unit: 0x10, name: n, replaces: []}, detailed_metric: false}",
	} {
		require.NoError(t, envoyrls.Check(map[string][]byte{"x": []byte(file)}), file)
	}
}

// An alias in each level doubles the descriptors.
func TestAliasBombIsRefused(t *testing.T) {
	file := "domain: d\ndescriptors:\n- &a0 {key: a}\n"
	for i := range 30 {
		a := strings.Repeat("a", i+1)
		file += "- &" + a + " {key: k" + a + ", descriptors: [" + strings.Repeat(", {key: x, descriptors: []}", 0) + ref(i) + "]}\n"
	}
	require.ErrorContains(t, envoyrls.Check(map[string][]byte{"x": []byte(file)}), "descriptors: must be at most")
}

func TestLongKeysInAliasesAreRefused(t *testing.T) {
	file := "domain: d\ndescriptors:\n- key: &k " + strings.Repeat("x", 900_000) + "\n"
	for range 20 {
		file += "- {key: a, descriptors: [{key: *k, descriptors: [{key: *k, rate_limit: {unlimited: true}}]}]}\n"
	}
	require.ErrorContains(t, envoyrls.Check(map[string][]byte{"x": []byte(strings.Replace(file, "{key: a", "{key: a, value: b", 1))}), "there once")
	file = strings.ReplaceAll(file, "- {key: a,", "- {key: a, value: V,")
	for i := range 20 {
		file = strings.Replace(file, "value: V", "value: v"+strings.Repeat("i", i+1), 1)
	}
	require.ErrorContains(t, envoyrls.Check(map[string][]byte{"x": []byte(file)}), "descriptors: keys and values must have at most 8388608 bytes")
}

func ref(i int) string {
	if i == 0 {
		return "*a0"
	}
	a := "*" + strings.Repeat("a", i)
	return "{key: l, descriptors: [" + a + "]}, {key: r, descriptors: [" + a + "]}"
}

func FuzzCheck(f *testing.F) {
	f.Add([]byte(shop))
	f.Add([]byte("domain: d\ndescriptors: [&x {key: a, descriptors: [*x]}]"))
	f.Fuzz(func(t *testing.T, file []byte) {
		if err := envoyrls.Check(map[string][]byte{"x": file}); err != nil && !strings.HasPrefix(err.Error(), "envoyrls: x: ") {
			t.Errorf("%q: %v", file, err)
		}
	})
}
