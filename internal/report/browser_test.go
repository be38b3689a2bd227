package report_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/browser"
	"github.com/spillway-go/spillway/internal/report"
)

// wide is a page whose table does not fit a phone.
func wide() *report.Page {
	table := &report.Table{Head: []string{"guard, load"}}
	for i := range 12 {
		table.Head = append(table.Head, fmt.Sprintf("column %d", i))
	}
	for _, guard := range []string{"bare 0.5×", "a guard with a long name and options", "averylongnamewithoutanyspaces:threshold=0.95"} {
		row := []string{guard}
		for i := range 12 {
			row = append(row, fmt.Sprintf("%d.25 %%", 100+i))
		}
		table.Rows = append(table.Rows, row)
	}
	chart := report.Chart{
		Title: "Goodput", Unit: "%", X: []float64{0, 1, 2, 3}, Bands: []report.Band{{From: 0, To: 2, Name: "0.5×"}, {From: 2, To: 3, Name: "5×"}},
		Marks: []report.Mark{{Y: 100, Name: "capacity"}},
		Lines: []report.Line{{Name: "bare", Y: []float64{100, 3, 1, 0}}, {Name: "guarded", Y: []float64{100, 98, 97, 96.5}, Role: report.First}},
	}
	return &report.Page{Title: "A page", Sections: []report.Section{{Table: table, Charts: []report.Chart{chart, chart}}}}
}

// legendTexts are the legends as they are to be read.
const legendTexts = `[...document.querySelectorAll(".u-legend")].map((l) =>
	[...l.rows].map((r) => [...r.cells].map((c) => c.innerText.trim()).join(" ")).join(" ").replace(/\s+/g, " ").trim())`

func TestPageInABrowser(t *testing.T) {
	file := filepath.Join(t.TempDir(), "page.html")
	require.NoError(t, wide().Save(file))
	b := browser.Start(t)
	for name, screen := range map[string]browser.Screen{
		"report-desk": {Width: 1100, Height: 800}, "report-phone": {Width: 360, Height: 740, Phone: true, Dark: true},
	} {
		tab := b.Open(t, "file://"+file, screen)
		tab.Wait(t, `document.querySelectorAll(".u-legend").length == 2`, 10*time.Second)

		var legends []string
		tab.Eval(t, legendTexts, &legends)
		require.Equal(t, []string{"bare guarded", "bare guarded"}, legends, "names alone, until there is a cursor")
		tab.Eval(t, `document.querySelector(".chart").focus()`, nil)
		tab.Press(t, "ArrowLeft")
		tab.Press(t, "ArrowLeft")
		tab.Eval(t, legendTexts, &legends)
		require.Equal(t, []string{"2.0 s bare 1 guarded 97.0", "2.0 s bare 1 guarded 97.0"}, legends, "the keys move the cursor of all charts")

		var overflows bool
		tab.Eval(t, `document.documentElement.scrollWidth > innerWidth`, &overflows)
		require.False(t, overflows, "the page itself never scrolls sideways")
		var gap float64
		tab.Eval(t, `(() => {
			const box = document.querySelector(".scroll"), row = box.querySelector("tbody tr:last-child");
			box.scrollLeft = 1e6;
			const last = row.lastElementChild.getBoundingClientRect(), name = row.firstElementChild.getBoundingClientRect();
			return Math.min(last.left - name.right, box.getBoundingClientRect().right + 1 - last.right);
		})()`, &gap)
		require.GreaterOrEqual(t, gap, 0.0, "the table scrolls to its last column, beside the name of the row")
		tab.Screenshot(t, name)
		require.Empty(t, tab.Problems())
	}
}

func TestWriteToAFolderThatIsNotThere(t *testing.T) {
	require.ErrorIs(t, wide().Save(filepath.Join(t.TempDir(), "no", "page.html")), os.ErrNotExist)
}
