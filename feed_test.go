package spillway_test

import (
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/shadow"
	"github.com/spillway-go/spillway/shedder"
	"github.com/spillway-go/spillway/stats"
)

var update = flag.Bool("update", false, "write the golden files")

// notInFeed lists Stats types without a table: figures of one key, which is never a label, and of rules, which a loop yields.
var notInFeed = []string{"cluster/lease.KeyStats", "gateway/envoyrls.RuleStats"}

// A table of the feed has rows for every field of its Stats struct.
func TestEveryStatsFieldIsInTheFeed(t *testing.T) {
	fields, rows, names := map[string][]string{}, map[string][]string{}, map[string]string{}
	embeds := map[string][]string{}
	for _, file := range goFiles(t) {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		texts := constants(f)
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.TypeSpec:
				if s, ok := n.Type.(*ast.StructType); ok && n.Name.IsExported() && strings.HasSuffix(n.Name.Name, "Stats") {
					of := path.Dir(file) + "." + n.Name.Name
					fields[of], embeds[of] = fieldsOf(path.Dir(file), s)
				}
			case *ast.ValueSpec:
				if name, ok := strings.CutSuffix(n.Names[0].Name, "StatsRows"); ok || n.Names[0].Name == "statsRows" {
					if !ok {
						name = ""
					} else {
						name = strings.ToUpper(name[:1]) + name[1:]
					}
					of := path.Dir(file) + "." + name + "Stats"
					rows[of] = rowsOf(t, n, texts, names)
				}
			}
			return true
		})
	}
	require.Greater(t, len(fields), 15)
	for of, want := range fields {
		if slices.Contains(notInFeed, of) {
			continue
		}
		have := rows[of]
		for _, other := range embeds[of] {
			want = append(want, fields[other]...)
			have = append(have, rows[other]...)
		}
		for _, field := range want {
			if field != "Name" { // the label policy
				require.Contains(t, have, field, "the field %s of %s is missing from the feed", field, of)
			}
		}
		for _, field := range rows[of] {
			require.Contains(t, want, field, "%s", of)
		}
	}
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		lines = append(lines, name+"\t"+names[name]+"\n")
	}
	const why = "renaming a metric breaks the boards and alerts of users; run with -update if it is meant"
	golden(t, "testdata/metrics.txt", strings.Join(lines, ""), why)
	if _, err := os.Stat("telemetry/otel"); err == nil {
		golden(t, "telemetry/otel/metrics.txt", strings.Join(lines, ""), "it is a copy of testdata/metrics.txt")
	}
}

// constants returns the texts of the constants of a file by name.
func constants(f *ast.File) map[string]string {
	texts := map[string]string{}
	ast.Inspect(f, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok && len(v.Values) == 1 {
			if lit, ok := v.Values[0].(*ast.BasicLit); ok && lit.Kind == token.STRING {
				texts[v.Names[0].Name], _ = strconv.Unquote(lit.Value)
			}
		}
		return true
	})
	return texts
}

func golden(t *testing.T, file, got, why string) {
	t.Helper()
	if *update {
		require.NoError(t, os.MkdirAll(path.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), got, why)
}

// fieldsOf returns the exported fields of a struct, and the types in this tree that it embeds.
func fieldsOf(folder string, s *ast.StructType) (fields, embeds []string) {
	for _, f := range s.Fields.List {
		if list, ok := f.Type.(*ast.ArrayType); ok {
			if of, ok := list.Elt.(*ast.Ident); ok && strings.HasSuffix(of.Name, "Stats") {
				continue // it has rows of its own, or none
			}
		}
		for _, name := range f.Names {
			if name.IsExported() {
				fields = append(fields, name.Name)
			}
		}
		if len(f.Names) > 0 {
			continue
		}
		switch e := f.Type.(type) {
		case *ast.Ident:
			embeds = append(embeds, folder+"."+e.Name)
		case *ast.SelectorExpr:
			embeds = append(embeds, e.X.(*ast.Ident).Name+"."+e.Sel.Name)
		}
	}
	return fields, embeds
}

// rowsOf returns the fields that a table has rows for, and adds the kinds, units and descriptions of its metrics by name.
func rowsOf(t *testing.T, table *ast.ValueSpec, texts, names map[string]string) (fields []string) {
	for _, e := range table.Values[0].(*ast.CompositeLit).Elts {
		call := e.(*ast.CallExpr)
		text := func(i int) string {
			if id, ok := call.Args[i].(*ast.Ident); ok {
				require.Contains(t, texts, id.Name)
				return texts[id.Name]
			}
			s, err := strconv.Unquote(call.Args[i].(*ast.BasicLit).Value)
			require.NoError(t, err)
			return s
		}
		fields = append(fields, text(0))
		require.Regexp(t, `^spillway(\.[a-z]+(_[a-z]+)*)+$`, text(1))
		var is string
		switch shape := call.Fun.(*ast.SelectorExpr).Sel.Name; shape {
		case "Count", "By", "ByKey":
			is = "counter\t" + text(2) + "\t" + text(3)
		case "ByReason":
			is = "counter\t{request}\t" + text(2)
		case "Gauge":
			is = "gauge\t" + text(2) + "\t" + text(3)
		case "Histogram":
			is = "histogram\ts\t" + text(2)
		default:
			is = "gauge\t\t" + text(2)
		}
		if before, ok := names[text(1)]; ok {
			require.Equal(t, before, is, "%s has one kind, unit and description", text(1))
		}
		names[text(1)] = is
	}
	return fields
}

func TestGateYieldsItsPolicies(t *testing.T) {
	bucket := spillway.Must(limiter.New(limiter.Bucket{Name: "per-user", Rate: limiter.Per(1, 1)}))
	trial := spillway.Must(shedder.New(&shedder.Options{Name: "trial"}))
	shed := spillway.Must(shedder.New(nil))
	gate := spillway.New(shadow.New(trial), bucket, &slots{limit: 1}, shed)
	seen := map[string]bool{}
	for m := range gate.Metrics() {
		require.NotEmpty(t, m.Help, m.Name)
		require.NotNil(t, m.Of)
		line := m.Name
		for _, l := range m.Labels {
			line += " " + l.Name + "=" + l.Value
		}
		require.False(t, seen[line], "%s appears twice", line)
		seen[line] = true
	}
	for _, want := range []string{
		"spillway.gate.in_flight",
		"spillway.shadow.requests policy=trial shadow=0 result=admitted",
		"spillway.shedder.in_flight shadow=0 policy=trial",
		"spillway.limiter.requests policy=per-user result=admitted",
		"spillway.shedder.in_flight policy=shedder",
	} {
		require.True(t, seen[want], "%s is missing from %v", want, slices.Sorted(maps.Keys(seen)))
	}
	require.False(t, seen["spillway.shedder.limit policy=shedder"], "+Inf is left out")
	for range gate.Metrics() {
		break
	}
	count := 0
	for _, m := range stats.Each(map[string]stats.Source{"a": gate, "b": spillway.New(shed)}) {
		if m.Name == "spillway.shedder.in_flight" && m.Label("policy") == "shedder" {
			count++
		}
	}
	require.Equal(t, 1, count, "a policy of two gates appears once")
}
