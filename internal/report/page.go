package report

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io"
	"math"
	"os"
	"strings"
)

// A Page is a report: a title, a few words, and sections in order.
type Page struct {
	Title    string
	Lead     string // one or two sentences under the title
	Sections []Section
	Notes    []string // how it was measured, shown at the end
}

// A Section is a heading with text, bars, a table and charts, each of them optional, shown in this order.
type Section struct {
	Title  string
	Text   string
	Bars   []BarGroup
	Table  *Table
	Charts []Chart
}

// A BarGroup is a set of bars to compare.
type BarGroup struct {
	Title string
	Bars  []Bar
}

// A Bar is a fraction of the whole width.
type Bar struct {
	Name  string
	Text  string  // the value, as text
	Value float64 // 0..1; values outside are drawn at the edge
	Role  Role
}

// A Table has one row of cells for each line. The first column is a name, the others are figures.
type Table struct {
	Head []string
	Rows [][]string
}

// A Chart shows lines over the same X.
type Chart struct {
	Title  string
	About  string
	Unit   string
	X      []float64 // ascending
	XUnit  string    // "s" if empty
	Lines  []Line
	Bands  []Band
	Log    bool    // logarithmic Y
	Min    float64 // the least Y shown; with Log it must be above 0
	Max    float64 // the greatest Y shown; 0 takes it from the data
	Marks  []Mark  // horizontal lines
	Height int     // in CSS pixels; 0 means 220
}

// A Line is one value for each X. NaN and infinities are gaps.
type Line struct {
	Name   string
	Y      []float64
	Role   Role
	Dashed bool
	Fill   bool
}

// A Band names a stretch of X.
type Band struct {
	From, To float64
	Name     string
}

// A Mark is a horizontal line with a name.
type Mark struct {
	Y    float64
	Name string
}

//go:embed page.html page.css page.js chart.js uplot/uplot.js uplot/uplot.css
var files embed.FS

// File returns a file that other pages use too: "uplot.js", "uplot.css", "chart.js", which draws a [Chart], or "page.css".
func File(name string) ([]byte, error) {
	if strings.HasPrefix(name, "uplot.") {
		name = "uplot/" + name
	}
	return files.ReadFile(name)
}

// Save writes the page to the file of the given name.
func (p *Page) Save(name string) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(p.Write(file), file.Close())
}

// Write renders the page. It fails if a chart is invalid (a line has more or fewer values than X, for example) or if w fails.
func (p *Page) Write(w io.Writer) error {
	charts, err := p.charts()
	if err != nil {
		return err
	}
	t, err := template.New("page.html").Funcs(template.FuncMap{"percent": percent}).ParseFS(files, "page.html")
	if err != nil {
		return err
	}
	text := func(name string) string {
		data, readErr := File(name)
		if err == nil {
			err = readErr
		}
		return string(data)
	}
	view := struct {
		*Page
		Styles, Library, Charts, Script any
		Data                            any
	}{
		Page:    p,
		Styles:  template.CSS(text("uplot.css") + text("page.css")), //nolint:gosec // our own files
		Library: template.JS(text("uplot.js")),                      //nolint:gosec // our own files
		Charts:  template.JS(text("chart.js")),                      //nolint:gosec // our own files
		Script:  template.JS(text("page.js")),                       //nolint:gosec // our own files
		Data:    template.JS(charts),                                //nolint:gosec // from encoding/json, which escapes <, > and &
	}
	if err != nil {
		return err
	}
	return t.Execute(w, view)
}

// percent returns v as a CSS width.
func percent(v float64) template.CSS {
	return template.CSS(fmt.Sprintf("%.1f%%", 100*math.Min(math.Max(v, 0), 1))) //nolint:gosec // a number
}

// chartData is a Chart as the script reads it.
type chartData struct {
	Unit   string       `json:"unit"`
	XUnit  string       `json:"xUnit"`
	Log    bool         `json:"log"`
	Min    float64      `json:"min"`
	Max    float64      `json:"max"`
	Height int          `json:"height"`
	Data   [][]*float64 `json:"data"`
	Lines  []lineData   `json:"lines"`
	Bands  []Band       `json:"bands"`
	Marks  []Mark       `json:"marks"`
}

type lineData struct {
	Name   string `json:"name"`
	Role   Role   `json:"role"`
	Dashed bool   `json:"dashed"`
	Fill   bool   `json:"fill"`
}

// charts returns the data of all charts as JSON, in the order in which they stand on the page.
func (p *Page) charts() ([]byte, error) {
	all := []chartData{}
	for _, s := range p.Sections {
		for i := range s.Charts {
			d, err := s.Charts[i].data()
			if err != nil {
				return nil, err
			}
			all = append(all, d)
		}
	}
	return json.Marshal(all)
}

func (c *Chart) data() (chartData, error) {
	d := chartData{
		Unit: c.Unit, XUnit: c.XUnit, Log: c.Log, Min: c.Min, Max: c.Max, Height: c.Height,
		Data: [][]*float64{gaps(c.X)}, Lines: []lineData{}, Bands: c.Bands, Marks: c.Marks,
	}
	if d.XUnit == "" {
		d.XUnit = "s"
	}
	if d.Height == 0 {
		d.Height = 220
	}
	if c.Log && !(c.Min > 0) {
		return d, fmt.Errorf("report: Chart %q: Min: must be above 0 with Log, got %g", c.Title, c.Min)
	}
	for _, l := range c.Lines {
		if len(l.Y) != len(c.X) {
			return d, fmt.Errorf("report: Chart %q: line %q has %d values for %d of X", c.Title, l.Name, len(l.Y), len(c.X))
		}
		d.Data = append(d.Data, gaps(l.Y))
		d.Lines = append(d.Lines, lineData{Name: l.Name, Role: l.Role, Dashed: l.Dashed, Fill: l.Fill})
	}
	return d, nil
}

// gaps turns values that JSON cannot represent into null, and drops digits that are not visible.
func gaps(values []float64) []*float64 {
	out := make([]*float64, len(values))
	for i, v := range values {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			continue
		}
		rounded := math.Round(v*1e4) / 1e4
		out[i] = &rounded
	}
	return out
}
