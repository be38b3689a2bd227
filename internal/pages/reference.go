package pages

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// The pages that are generated from the code, and the list of metrics that a test of the root module keeps.
const (
	optionsPage = "docs/reference/options.md"
	metricsPage = "docs/reference/metrics.md"
	metricsList = "testdata/metrics.txt"
)

// An Option is a field of an options type of a public package.
type Option struct {
	Package string // folder, such as "middleware/httpgate"
	Type    string
	Field   string
	Go      string // its type, as the code has it
	Doc     string // "" if it has no comment
}

// A Metric is one line of the list of metrics.
type Metric struct{ Name, Kind, Unit, Help string }

// References returns the text of each generated page by its name.
func (t Tree) References() (map[string]string, error) {
	options, err := t.Options()
	if err != nil {
		return nil, err
	}
	metrics, err := t.Metrics()
	if err != nil {
		return nil, err
	}
	return map[string]string{optionsPage: optionsText(options), metricsPage: metricsText(metrics)}, nil
}

// Undocumented returns a line for each option without a comment or a row in the reference, and for each metric without help
// or a row.
func (t Tree) Undocumented() (options, metrics []string, err error) {
	all, err := t.Options()
	if err != nil {
		return nil, nil, err
	}
	page, err := t.read(optionsPage)
	if err != nil {
		return nil, nil, err
	}
	for _, o := range all {
		if o.Doc == "" || !strings.Contains(page, o.row()) {
			options = append(options, fmt.Sprintf("%s: %s.%s has no comment or no row in %s", o.Package, o.Type, o.Field, optionsPage))
		}
	}
	listed, err := t.Metrics()
	if err != nil {
		return nil, nil, err
	}
	if page, err = t.read(metricsPage); err != nil {
		return nil, nil, err
	}
	for _, m := range listed {
		if m.Help == "" || !strings.Contains(page, m.row()) {
			metrics = append(metrics, fmt.Sprintf("%s has no help or no row in %s", m.Name, metricsPage))
		}
	}
	return options, metrics, nil
}

// Metrics returns the metrics that the list names.
func (t Tree) Metrics() ([]Metric, error) {
	text, err := t.read(metricsList)
	if err != nil {
		return nil, err
	}
	var all []Metric
	for line := range strings.Lines(text) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(f) != 4 {
			return nil, fmt.Errorf("pages: %s has the line %q, want name, kind, unit and help", metricsList, line)
		}
		all = append(all, Metric{f[0], f[1], f[2], f[3]})
	}
	return all, nil
}

func (m Metric) row() string {
	return fmt.Sprintf("| `%s` | %s | %s | %s |\n", m.Name, m.Kind, m.Unit, cell(m.Help))
}

func metricsText(all []Metric) string {
	var b strings.Builder
	b.WriteString("# Metrics\n\nAfter this page you know every figure that Spillway exports, with its kind and unit. " +
		"[Operating](../operating.md) says which of them to watch.\n\n" +
		"The names are those of the feed (`stats.Each`) and of OpenTelemetry. Prometheus has underscores instead of dots, the unit at the end, " +
		"and `_total` after a counter.\nThis page is made from the code: `go run ./internal/doccheck -write`.\n")
	room := ""
	for _, m := range all {
		if parts := strings.Split(m.Name, "."); parts[1] != room {
			room = parts[1]
			fmt.Fprintf(&b, "\n## %s\n\n| metric | kind | unit | meaning |\n|---|---|---|---|\n", room)
		}
		b.WriteString(m.row())
	}
	return b.String()
}

// Options returns the exported fields of the options types of all public packages: types with a name that ends in Options,
// the rules of package limiter, and types of the same package that these fields name.
func (t Tree) Options() ([]Option, error) {
	files, err := t.files(".go")
	if err != nil {
		return nil, err
	}
	byPackage := make(map[string]map[string]*structType)
	for _, file := range files {
		folder := path.Dir(file)
		if strings.HasSuffix(file, "_test.go") || !public(folder) {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(t.Root, file), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		if f.Name.Name == "main" {
			continue
		}
		if byPackage[folder] == nil {
			byPackage[folder] = make(map[string]*structType)
		}
		structsOf(f, byPackage[folder])
	}
	var all []Option
	for folder, types := range byPackage {
		for name := range optionTypes(types) {
			all = append(all, fieldsOf(folder, name, types[name].fields)...)
		}
	}
	slices.SortStableFunc(all, func(a, b Option) int {
		return strings.Compare(a.Package+" "+a.Type, b.Package+" "+b.Type)
	})
	return all, nil
}

// public reports whether users can import the package in a folder.
func public(folder string) bool {
	parts := strings.Split(folder, "/")
	return !slices.ContainsFunc([]string{"bench", "examples", "internal", "lab", "sim", "policytest", "cmd"}, func(private string) bool {
		return slices.Contains(parts, private)
	})
}

// A structType is the declaration of a type.
type structType struct {
	doc    string
	fields []*ast.Field
}

// structsOf adds the exported struct types of a file.
func structsOf(f *ast.File, types map[string]*structType) {
	for _, d := range f.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, s := range g.Specs {
			spec, ok := s.(*ast.TypeSpec)
			if !ok || !spec.Name.IsExported() {
				continue
			}
			if typ, ok := spec.Type.(*ast.StructType); ok {
				types[spec.Name.Name] = &structType{doc: g.Doc.Text() + spec.Doc.Text(), fields: typ.Fields.List}
			}
		}
	}
}

// optionTypes returns the names of the options types among the types of one package.
func optionTypes(types map[string]*structType) map[string]bool {
	found := make(map[string]bool)
	var add func(name string)
	add = func(name string) {
		spec, ok := types[name]
		if !ok || found[name] {
			return
		}
		found[name] = true
		for _, field := range spec.fields {
			if len(field.Names) > 0 && field.Names[0].IsExported() {
				add(elem(field.Type))
			}
		}
	}
	for name, spec := range types {
		if strings.HasSuffix(name, "Options") || strings.Contains(spec.doc, " is the [Rule] ") {
			add(name)
		}
	}
	return found
}

// elem returns the name of the type of the same package that a field has, points to, or is a slice of; "" if there is none.
func elem(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.StarExpr:
		return elem(e.X)
	case *ast.ArrayType:
		return elem(e.Elt)
	}
	return ""
}

func fieldsOf(folder, typ string, fields []*ast.Field) []Option {
	var all []Option
	for _, field := range fields {
		doc := field.Doc.Text()
		if doc == "" {
			doc = field.Comment.Text()
		}
		for _, name := range field.Names {
			if name.IsExported() {
				all = append(all, Option{folder, typ, name.Name, exprText(field.Type), doc})
			}
		}
	}
	return all
}

// exprText returns the text of a type, short.
func exprText(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return exprText(e.X) + "." + e.Sel.Name
	case *ast.StarExpr:
		return "*" + exprText(e.X)
	case *ast.ArrayType:
		return "[]" + exprText(e.Elt)
	case *ast.MapType:
		return "map[" + exprText(e.Key) + "]" + exprText(e.Value)
	case *ast.FuncType:
		return "func"
	}
	return "…"
}

func (o Option) row() string {
	return fmt.Sprintf("| `%s` | `%s` | %s |\n", o.Field, o.Go, cell(strings.Join(commentBlocks(o.Doc), " ")))
}

func optionsText(all []Option) string {
	var b strings.Builder
	b.WriteString("# Options\n\nAfter this page you know every option, its unit and its default. A zero field stands for the default, " +
		"unless the option says otherwise.\nThis page is made from the comments in the code: `go run ./internal/doccheck -write`.\n")
	folder, name := "", ""
	for _, o := range all {
		if o.Package != folder {
			folder, name = o.Package, ""
			fmt.Fprintf(&b, "\n## %s\n", folder)
		}
		if o.Type != name {
			name = o.Type
			fmt.Fprintf(&b, "\n### %s.%s\n\n| option | type | meaning |\n|---|---|---|\n", path.Base(folder), name)
		}
		b.WriteString(o.row())
	}
	return b.String()
}

var docLink = regexp.MustCompile(`\[\*?([A-Za-z][A-Za-z0-9_./]*)\]`)

// cell makes a text fit for a cell of a table.
func cell(text string) string {
	text = docLink.ReplaceAllString(strings.TrimSpace(text), "`$1`")
	return strings.NewReplacer("|", "\\|", "<", "&lt;", "\n", " ").Replace(text)
}
