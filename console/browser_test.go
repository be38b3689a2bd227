package console_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/console"
	"github.com/spillway-go/spillway/internal/browser"
	"github.com/spillway-go/spillway/stats"
)

// screens are what the page is looked at on.
var screens = map[string]browser.Screen{
	"desk-light": {Width: 1280, Height: 900}, "desk-dark": {Width: 1280, Height: 900, Dark: true},
	"phone-light": {Width: 360, Height: 740, Phone: true}, "phone-dark": {Width: 360, Height: 740, Phone: true, Dark: true},
}

// play is a service whose overload follows a script. Its counters grow with the clock, so their rates are known.
type play struct {
	mu     sync.Mutex
	last   time.Time
	heavy  bool
	counts map[string]float64
}

func newPlay() *play { return &play{last: time.Now(), counts: map[string]float64{}} }

func (p *play) overload(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.grow()
	p.heavy = on
}

// grow adds to the counters what has come since the last time.
func (p *play) grow() {
	now := time.Now()
	dt := now.Sub(p.last).Seconds()
	p.last = now
	rates := map[string]float64{"sheddable admitted": 20, "normal admitted": 60, "critical admitted": 4, "failed": 2}
	if p.heavy {
		rates = map[string]float64{
			"sheddable refused": 13, "normal admitted": 69, "normal refused": 31, "critical admitted": 2.77, "would": 60, "wrong": 20, "failed": 30,
		}
	}
	for name, rate := range rates {
		p.counts[name] += rate * dt
	}
}

func (p *play) metrics() (out []stats.Metric) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.grow()
	add := func(kind stats.Kind, name, unit string, value float64, labels ...string) {
		m := stats.Metric{Name: "spillway." + name, Unit: unit, Kind: kind, Value: value, Help: "Scripted."}
		for i := 0; i < len(labels); i += 2 {
			m.Labels = append(m.Labels, stats.Label{Name: labels[i], Value: labels[i+1]})
		}
		out = append(out, m)
	}
	when := func(heavy, calm float64) float64 {
		if p.heavy {
			return heavy
		}
		return calm
	}
	admitted := p.counts["sheddable admitted"] + p.counts["normal admitted"] + p.counts["critical admitted"]
	refused := p.counts["sheddable refused"] + p.counts["normal refused"] + p.counts["critical refused"]
	counter, value := stats.KindCounter, stats.KindGauge
	add(counter, "gate.requests", "{request}", admitted, "result", "admitted")
	add(counter, "gate.requests", "{request}", refused, "result", "refused")
	add(counter, "gate.refusals", "{request}", refused, "policy", "shedder", "reason", "limit reached")
	shed := []string{"policy", "shedder"}
	add(counter, "shedder.requests", "{request}", admitted, append(shed, "result", "admitted")...)
	add(counter, "shedder.requests", "{request}", refused, append(shed, "result", "refused")...)
	for _, c := range []string{"sheddable", "normal", "critical"} {
		add(counter, "shedder.priority_admissions", "{request}", p.counts[c+" admitted"], append(shed, "priority", c)...)
		add(counter, "shedder.priority_refusals", "{request}", p.counts[c+" refused"], append(shed, "priority", c)...)
	}
	add(value, "shedder.limit", "{request}", when(24, 31), shed...)
	add(value, "shedder.in_flight", "{request}", when(24, 6), shed...)
	add(value, "shedder.cpu", "1", when(0.99, 0.4), shed...)
	add(value, "shedder.cpu_smoothed", "1", when(0.97, 0.42), shed...)
	add(value, "shedder.queue_delay", "s", when(0.041, 0.0002), shed...)
	add(value, "shedder.min_rt", "s", 0.012, shed...)
	add(value, "demand", "1", when(1.6, 0.4), shed...)
	for _, r := range []string{"calm", "cpu"} {
		add(value, "shedder.overload_reason", "", when(map[string]float64{"cpu": 1}[r], map[string]float64{"calm": 1}[r]), append(shed, "reason", r)...)
	}
	db := []string{"policy", "checkout-db"}
	for _, s := range []string{"closed", "open"} {
		add(value, "breaker.state", "", when(map[string]float64{"open": 1}[s], map[string]float64{"closed": 1}[s]), append(db, "state", s)...)
	}
	add(value, "breaker.failure", "1", when(0.6, 0.02), db...)
	add(value, "breaker.admitted", "1", when(0, 1), db...)
	try := []string{"shadow", "0", "policy", "shedder"}
	add(counter, "shadow.requests", "{request}", p.counts["would"], append(try, "result", "refused")...)
	add(counter, "shadow.regrets", "{request}", p.counts["wrong"], append(try, "candidate", "refused")...)
	return out
}

func (p *play) source() stats.Source {
	return faulty(func(yield func(stats.Metric) bool) {
		for _, m := range p.metrics() {
			if !yield(m) {
				return
			}
		}
	})
}

const sentence = `document.getElementById("headline").textContent`

func TestBrowserShowsAnOverload(t *testing.T) {
	b := browser.Start(t)
	script := newPlay()
	idle := spillway.New()
	page := console.New(map[string]stats.Source{"api": script.source(), "jobs": idle}, &console.Options{Title: "Checkout"})
	t.Cleanup(func() { page.Close() })
	mux := http.NewServeMux()
	mux.Handle("/debug/spillway/", page)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	url := server.URL + "/debug/spillway/"

	tab := b.Open(t, url, screens["desk-light"])
	paint := 1e9
	for tries := 0; tries < 30 && paint > 300; tries++ { // the machine may be busy with other things
		require.NoError(t, tab.Navigate(url))
		tab.Wait(t, `performance.getEntriesByName("first-contentful-paint").length`, 10*time.Second)
		var ms float64
		tab.Eval(t, `performance.getEntriesByName("first-contentful-paint")[0].startTime`, &ms)
		paint = min(paint, ms)
	}
	t.Logf("first paint after %.0f ms", paint)
	require.LessOrEqual(t, paint, 300.0)
	tab.Wait(t, `document.querySelectorAll(".chart canvas").length >= 8`, 10*time.Second)
	tab.Wait(t, sentence+` == "Refusing nothing."`, 5*time.Second)

	for attempt := 1; ; attempt++ { // samples are taken and looked at each second, so a busy machine may need more than two
		script.overload(true)
		took := tab.Wait(t, sentence+`.startsWith("api: Refusing")`, 10*time.Second)
		t.Logf("the sentence changed %v after the overload began", took.Round(time.Millisecond))
		if took < 2*time.Second {
			break
		}
		require.Less(t, attempt, 5, "the sentence changed after %v", took)
		script.overload(false)
		tab.Wait(t, sentence+` == "Refusing nothing."`, 10*time.Second)
	}
	want := regexp.MustCompile(`^api: Refusing 3[5-9] % for \d+ s because goroutines wait 41 ms for a CPU; limit 24, 24 in flight; ` +
		`sheddable all, normal 3[01] %, critical none\.$`)
	tab.Wait(t, sentence+`.match(/Refusing 3[5-9] % for [5-9] s .* sheddable all, normal 31 %, critical none/)`, 15*time.Second)
	var said string
	tab.Eval(t, sentence, &said)
	require.Regexp(t, want, said)
	tab.Wait(t, `spillwayCharts.drawn(document.querySelector(".chart")).plot.data[0].length >= 7`, 5*time.Second) // enough to compare
	compare(t, tab, page)

	var changes []string
	tab.Eval(t, `[...document.querySelectorAll(".changes button")].map((b) => b.textContent.slice(8))`, &changes)
	require.Contains(t, changes, "api: breaker checkout-db: closed → open")
	require.Contains(t, changes, "api: shedder: calm → cpu")
	var marks []int
	tab.Eval(t, `[...document.querySelectorAll(".chart")].map((c) => spillwayCharts.drawn(c).chart.events().length)`, &marks)
	require.Equal(t, slices.Repeat([]int{len(changes)}, len(marks)), marks, "the changes are marks on all charts")
	var tables string
	tab.Eval(t, `[...document.querySelectorAll(".source .scroll")].map((t) => t.innerText).join("\n").replace(/\s+/g, " ")`, &tables)
	require.Contains(t, tables, "checkout-db (breaker) open")
	require.Contains(t, tables, "shedder cpu 24 24")
	require.Contains(t, tables, "shedder #0")

	keyboard(t, tab)
	for name, screen := range screens {
		require.NoError(t, tab.Resize(screen))
		tab.Wait(t, fmt.Sprintf(`innerWidth == %d && [...document.querySelectorAll(".chart")].every((c) => Math.abs(spillwayCharts.drawn(c).plot.width - c.clientWidth) < 2)`,
			screen.Width), 5*time.Second)
		var wide []string
		tab.Eval(t, `[...document.querySelectorAll("main *")].filter((e) => !e.closest(".scroll, .u-wrap") && e.getBoundingClientRect().right > innerWidth + 1)
			.map((e) => e.tagName + "." + e.className)`, &wide)
		require.Empty(t, wide, "nothing is wider than the screen: %s", name)
		var overflows bool
		tab.Eval(t, `document.documentElement.scrollWidth > innerWidth`, &overflows)
		require.False(t, overflows, name)
		readable(t, tab, name)
		tab.Screenshot(t, "console-"+name)
	}

	script.overload(false)
	tab.Wait(t, sentence+` == "Refusing nothing."`, 10*time.Second)
	require.Empty(t, tab.Problems())
	for _, address := range tab.Requests() {
		require.True(t, strings.HasPrefix(address, url), "a request off the page: %s", address)
	}
}

// compare checks that the charts draw the numbers of the feed.
func compare(t *testing.T, tab *browser.Tab, page *console.Page) {
	t.Helper()
	var drawn []struct {
		Title string
		Lines []string
		Data  [][]*float64
	}
	tab.Eval(t, `[...document.querySelectorAll("figure")].map((f) => {
		const d = spillwayCharts.drawn(f.querySelector(".chart"));
		return { title: f.querySelector("b").textContent, lines: d.chart.lines.map((l) => l.name), data: d.plot.data };
	})`, &drawn)
	line := func(title, name string) map[int64]float64 {
		for _, c := range drawn {
			if i := slices.Index(c.Lines, name); c.Title == title && i >= 0 {
				out := map[int64]float64{}
				for j, v := range c.Data[i+1] {
					if v != nil {
						out[int64(*c.Data[0][j]*1000+0.5)] = *v
					}
				}
				return out
			}
		}
		t.Fatalf("no line %q in a chart %q", name, title)
		return nil
	}
	var feed answer
	require.NoError(t, json.Unmarshal(get(page, "/snapshot?since=0").Body.Bytes(), &feed))
	checked := 0
	for _, c := range []struct {
		title, line, name, label string
		scale                    float64
	}{
		{"Requests", "admitted", "spillway.gate.requests", "admitted", 1},
		{"Requests", "refused", "spillway.gate.requests", "refused", 1},
		{"In flight against its limit", "limit", "spillway.shedder.limit", "", 1},
		{"In flight against its limit", "in flight", "spillway.shedder.in_flight", "", 1},
		{"CPU", "smoothed", "spillway.shedder.cpu_smoothed", "", 100},
		{"Wait for a CPU", "goroutines wait", "spillway.shedder.queue_delay", "", 1000},
		{"Refusals by priority", "normal", "spillway.shedder.priority_refusals", "normal", 1},
		{"Refusals by reason", "shedder: limit reached", "spillway.gate.refusals", "limit reached", 1},
		{"Breakers", "checkout-db failed", "spillway.breaker.failure", "", 100},
		{"Demand", "shedder", "spillway.demand", "", 1},
	} {
		got := line(c.title, c.line)
		for _, s := range feed.Series {
			values := slices.Collect(maps.Values(s.Is.Labels))
			if s.Is.Source != "api" || s.Is.Name != c.name || c.label != "" && !slices.Contains(values, c.label) {
				continue
			}
			for i, at := range feed.Times {
				v := s.All
				if v == nil {
					v = s.V[i]
				}
				if drawn, ok := got[at]; ok && v != nil {
					require.InDelta(t, *v*c.scale, drawn, 1e-6+1e-6**v*c.scale, "%s, %s", c.title, c.line)
					checked++
				}
			}
		}
	}
	require.Greater(t, checked, 60)
	last := line("In flight against its limit", "limit")
	require.InDelta(t, 24, last[slices.Max(slices.Collect(maps.Keys(last)))], 0, "as the source says")
}

// keyboard uses the page without a mouse.
func keyboard(t *testing.T, tab *browser.Tab) {
	t.Helper()
	reached := map[string]bool{}
	for range 40 {
		tab.Press(t, "Tab")
		var at string
		tab.Eval(t, `(document.activeElement.className || document.activeElement.id || document.activeElement.tagName).split(" ")[0]`, &at)
		reached[at] = true
	}
	for _, place := range []string{"pause", "range", "chart", "scroll", "bad", "SUMMARY"} {
		require.True(t, reached[place], "Tab must reach %s: %v", place, reached)
	}
	tab.Eval(t, `document.querySelector(".chart").focus()`, nil)
	tab.Press(t, "ArrowLeft")
	tab.Press(t, "ArrowLeft")
	var legend string
	tab.Eval(t, `document.querySelector(".u-legend").innerText`, &legend)
	require.Regexp(t, `\d\d:\d\d:\d\d`, legend, "the arrow keys show the values of a moment")
	tab.Press(t, "Escape")
	tab.Wait(t, `!/\d\d:\d\d:\d\d/.test(document.querySelector(".u-legend").innerText)`, 5*time.Second)

	tab.Press(t, "p")
	tab.Wait(t, `document.getElementById("pause").getAttribute("aria-pressed") == "true" && /Paused/.test(document.getElementById("age").textContent)`, 5*time.Second)
	tab.Press(t, "p")
	tab.Wait(t, `/As of/.test(document.getElementById("age").textContent)`, 5*time.Second)
	tab.Eval(t, `document.querySelector("summary").focus()`, nil)
	tab.Press(t, "Enter")
	tab.Wait(t, `document.querySelectorAll("#all tbody tr").length > 20`, 5*time.Second)
	tab.Press(t, "Enter")
	tab.Eval(t, `document.querySelector(".changes button").focus()`, nil)
	tab.Press(t, "Enter")
	tab.Wait(t, `/\d\d:\d\d:\d\d/.test(document.querySelector(".u-legend").innerText)`, 5*time.Second)
	tab.Eval(t, `spillwayCharts.point(null)`, nil)
}

// readable checks the contrast of the text with what is behind it: at least 4.5, as WCAG asks for.
func readable(t *testing.T, tab *browser.Tab, name string) {
	t.Helper()
	var poor []string
	tab.Eval(t, `(() => {
		const rgb = (c) => c.match(/[\d.]+/g).map(Number);
		const light = (c) => { const [r, g, b] = rgb(c).map((v) => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
		const behind = (e) => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor; if (rgb(c)[3] !== 0) return c; } return "rgb(255, 255, 255)"; };
		return [...document.querySelectorAll("h1, h2, p, th, td, li, button, select, summary, label, span, b, footer")].filter((e) => e.innerText).map((e) => {
			const a = light(getComputedStyle(e).color), b = light(behind(e));
			return [e.tagName + " " + e.innerText.slice(0, 20), (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)];
		}).filter(([, c]) => c < 4.5).map(([e, c]) => e + " " + c.toFixed(1));
	})()`, &poor)
	require.Empty(t, poor, name)
}

// A page that is open while the server restarts, and while it stalls, says so and goes on.
func TestBrowserSurvivesTheServer(t *testing.T) {
	b := browser.Start(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := l.Addr().String()
	var stalled atomic.Bool
	serve := func(l net.Listener) (stop func()) {
		page := console.New(map[string]stats.Source{"api": newPlay().source()}, nil)
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if stalled.Load() {
				<-r.Context().Done()
				return
			}
			page.ServeHTTP(w, r)
		}), ReadHeaderTimeout: time.Minute}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = server.Serve(l)
		}()
		return func() {
			_ = server.Close()
			<-ended
			_ = page.Close()
		}
	}
	stop := serve(l)
	tab := b.Open(t, "http://"+address+"/", screens["phone-dark"])
	alarm := `document.getElementById("alarm").innerText`
	samples := `spillwayCharts.drawn(document.querySelector(".chart")).plot.data[0].length`
	tab.Wait(t, samples+` >= 3 && `+alarm+` == ""`, 15*time.Second)

	stalled.Store(true)
	tab.Wait(t, alarm+`.startsWith("No answer from the server for")`, 15*time.Second)
	stalled.Store(false)
	tab.Wait(t, alarm+` == ""`, 15*time.Second)
	tab.Wait(t, samples+` >= 8`, 5*time.Second) // with the samples of the stall

	stop()
	tab.Wait(t, alarm+`.startsWith("No answer from the server for")`, 15*time.Second)
	tab.Screenshot(t, "console-no-answer")
	l, err = net.Listen("tcp", address)
	require.NoError(t, err)
	t.Cleanup(serve(l))
	tab.Wait(t, alarm+`.startsWith("The process was restarted at")`, 15*time.Second)
	tab.Wait(t, samples+` >= 9`, 5*time.Second) // those from before it, too
	var changes string
	tab.Eval(t, `document.querySelector(".changes").innerText`, &changes)
	require.Contains(t, changes, "the process was restarted")
	tab.Screenshot(t, "console-restarted")
	for _, p := range tab.Problems() {
		require.Contains(t, p, "net::ERR_", "the browser reports the requests that failed, and nothing else went wrong")
	}
}
