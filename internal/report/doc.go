// Package report writes measurements as one self-contained HTML page that needs neither a server nor a network.
//
//	page := &report.Page{Title: "Goodput", Lead: "One run.", Sections: []report.Section{{
//		Charts: []report.Chart{{Title: "Goodput", Unit: "%", X: seconds, Lines: []report.Line{{Name: "bare", Y: values}}}},
//	}}}
//	err := page.Write(file)
//
// Tables, bars and the text are plain HTML. The charts over time are drawn by uPlot, which is kept in this package with
// its licence. The page fits a phone and follows the reader's choice of a light or a dark theme.
package report
