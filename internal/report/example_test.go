package report_test

import (
	"fmt"
	"strings"

	"github.com/spillway-go/spillway/internal/report"
)

func ExamplePage_Write() {
	page := &report.Page{
		Title: "Goodput",
		Sections: []report.Section{{
			Charts: []report.Chart{{
				Title: "Goodput", Unit: "%", X: []float64{0, 1, 2},
				Lines: []report.Line{{Name: "bare", Y: []float64{100, 3, 1}}, {Name: "guarded", Y: []float64{100, 98, 97}, Role: report.First}},
			}},
		}},
	}
	var html strings.Builder
	if err := page.Write(&html); err != nil {
		panic(err)
	}
	fmt.Println(strings.Contains(html.String(), "<h1>Goodput</h1>"))
	// Output: true
}
