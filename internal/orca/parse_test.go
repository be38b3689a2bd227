package orca

import (
	"encoding/base64"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/race"
)

func TestParseReadsWhatRenderWrites(t *testing.T) {
	r := render(1.25, 0.5, 900, 12)
	want := Load{CPU: 0.5, Application: 1.25}
	for form, field := range map[string][]string{
		"text": r.Text, "JSON": r.JSON, "binary": {"BIN " + base64.StdEncoding.EncodeToString([]byte(r.Binary))},
	} {
		got, ok := Parse(field)
		require.True(t, ok, form)
		require.Equal(t, want, got, form)
	}
	got, ok := ParseBinary(r.Binary)
	require.True(t, ok)
	require.Equal(t, want, got)
}

func TestParseForms(t *testing.T) {
	for field, want := range map[string]Load{
		"TEXT cpu_utilization=0.3":                                               {CPU: 0.3},
		"TEXT cpu_utilization:0.3,application_utilization:2":                     {CPU: 0.3, Application: 2},
		"TEXT named_metrics.kv=0.9, cpu_utilization = 1.5 ":                      {CPU: 1.5},
		"TEXT rps_fractional=10":                                                 {},
		`JSON {"cpu_utilization":0.25,"named_metrics":{"a":1}}`:                  {CPU: 0.25},
		`JSON {"applicationUtilization":0.5}`:                                    {Application: 0.5},
		"BIN " + base64.StdEncoding.EncodeToString([]byte("\x10\x05\x1a\x02ab")): {},
	} {
		got, ok := Parse([]string{field})
		require.True(t, ok, field)
		require.Equal(t, want, got, field)
	}
	for _, bad := range [][]string{
		nil, {"TEXT cpu_utilization=0.3", "TEXT cpu_utilization=0.3"}, {""}, {"TEXT"}, {"XML <a/>"},
		{"TEXT cpu_utilization"}, {"TEXT cpu_utilization=much"}, {"TEXT cpu_utilization=-1"}, {"TEXT cpu_utilization=NaN"},
		{"TEXT cpu_utilization=1e999"}, {"JSON {"}, {`JSON {"cpu_utilization":"1"}`}, {"BIN !"}, {"BIN CQ=="}, {"BIN GgU="}, {"BIN Dw=="},
	} {
		got, ok := Parse(bad)
		require.False(t, ok, "%q", bad)
		require.Zero(t, got, "%q", bad)
	}
}

func TestParseTextDoesNotAllocate(t *testing.T) {
	if race.Enabled {
		t.Skip("SKIPPED: the race detector allocates on its own account; run without -race")
	}
	field := render(1.25, 0.5, 900, 12).Text
	require.Zero(t, testing.AllocsPerRun(100, func() { Parse(field) }))
}

func FuzzParse(f *testing.F) {
	f.Add("TEXT cpu_utilization=0.3, application_utilization=1.7")
	f.Add(`JSON {"cpu_utilization":0.25}`)
	f.Add("BIN CQAAAAAAAOA/")
	f.Fuzz(func(t *testing.T, field string) {
		l, ok := Parse([]string{field})
		if !ok {
			require.Zero(t, l)
		}
		require.True(t, valid(l.CPU) && valid(l.Application), "%q: %v", field, l)
		if l, ok := ParseBinary(field); !ok {
			require.Zero(t, l)
		}
	})
}
