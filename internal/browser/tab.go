package browser

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// Screenshots is the environment variable with the folder that [Tab.Screenshot] writes to. If it is empty, pictures are taken
// and thrown away.
const Screenshots = "SPILLWAY_SCREENSHOTS"

// A Screen is a size and kind of screen to show a page on.
type Screen struct {
	Width, Height int // in CSS pixels
	Dark          bool
	Phone         bool // touch, and two device pixels for each CSS pixel
}

// A Tab shows one page.
type Tab struct {
	browser *Browser
	session string
	screen  Screen

	mu       sync.Mutex
	problems []string
	requests []string
}

type object = map[string]any

// Open opens a page in a new tab and waits until it has loaded.
func (b *Browser) Open(t testing.TB, url string, s Screen) *Tab {
	t.Helper()
	tab, err := b.open(s)
	if err == nil {
		err = tab.Navigate(url)
	}
	if err != nil {
		t.Fatalf("browser: %v", err)
	}
	return tab
}

func (b *Browser) open(s Screen) (*Tab, error) {
	var made struct {
		TargetID string `json:"targetId"`
	}
	if err := b.call("", "Target.createTarget", object{"url": "about:blank"}, &made); err != nil {
		return nil, err
	}
	var attached struct {
		SessionID string `json:"sessionId"`
	}
	if err := b.call("", "Target.attachToTarget", object{"targetId": made.TargetID, "flatten": true}, &attached); err != nil {
		return nil, err
	}
	tab := &Tab{browser: b, session: attached.SessionID, screen: s}
	b.mu.Lock()
	b.tabs[tab.session] = tab
	b.mu.Unlock()
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		if err := tab.Call(domain+".enable", nil, nil); err != nil {
			return nil, err
		}
	}
	if err := tab.Call("Emulation.setFocusEmulationEnabled", object{"enabled": true}, nil); err != nil { // a tab behind another sleeps
		return nil, err
	}
	return tab, tab.Resize(s)
}

// Resize shows the page on another screen.
func (t *Tab) Resize(s Screen) error {
	t.screen = s
	scale, scheme := 1, "light"
	if s.Phone {
		scale = 2
	}
	if s.Dark {
		scheme = "dark"
	}
	err := t.Call("Emulation.setDeviceMetricsOverride", object{"width": s.Width, "height": s.Height, "deviceScaleFactor": scale, "mobile": s.Phone}, nil)
	if err != nil {
		return err
	}
	return t.Call("Emulation.setEmulatedMedia", object{"features": []object{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
}

// Navigate opens a page in the tab and waits until it has loaded.
func (t *Tab) Navigate(url string) error {
	var went struct {
		ErrorText string `json:"errorText"`
	}
	if err := t.Call("Page.navigate", object{"url": url}, &went); err != nil {
		return err
	}
	if went.ErrorText != "" {
		return fmt.Errorf("%s: %s", url, went.ErrorText)
	}
	return t.until(`document.readyState == "complete" && location.href != "about:blank"`, patience)
}

// Call sends a command of the DevTools protocol to the tab, and decodes its result into result if that is not nil.
func (t *Tab) Call(method string, params, result any) error {
	return t.browser.call(t.session, method, params, result)
}

// Eval evaluates an expression, waits for it if it is a promise, and decodes its value into value if that is not nil.
func (t *Tab) Eval(tb testing.TB, expression string, value any) {
	tb.Helper()
	if err := t.eval(expression, value); err != nil {
		tb.Fatalf("browser: %s: %v", expression, err)
	}
}

func (t *Tab) eval(expression string, value any) error {
	var out struct {
		Result struct {
			Value json.RawMessage `json:"value"`
		} `json:"result"`
		ExceptionDetails *struct {
			Text      string `json:"text"`
			Exception struct {
				Description string `json:"description"`
			} `json:"exception"`
		} `json:"exceptionDetails"`
	}
	if err := t.Call("Runtime.evaluate", object{"expression": expression, "awaitPromise": true, "returnByValue": true}, &out); err != nil {
		return err
	}
	if e := out.ExceptionDetails; e != nil {
		return fmt.Errorf("%s %s", e.Text, e.Exception.Description)
	}
	if value == nil {
		return nil
	}
	return json.Unmarshal(out.Result.Value, value)
}

// Wait waits until the condition is true, and returns how long that took. It fails the test after the time given.
func (t *Tab) Wait(tb testing.TB, condition string, within time.Duration) time.Duration {
	tb.Helper()
	begin := time.Now()
	if err := t.until(condition, within); err != nil {
		tb.Fatalf("browser: %v", err)
	}
	return time.Since(begin)
}

func (t *Tab) until(condition string, within time.Duration) error {
	end := time.Now().Add(within)
	for {
		var ok bool
		err := t.eval("Boolean("+condition+")", &ok)
		if err == nil && ok {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("not within %v: %s (%w)", within, condition, err)
		}
		time.Sleep(20 * time.Millisecond) // the page runs in another process, in real time
	}
}

// Press presses and releases a key, such as "Tab", "ArrowLeft" or "p".
func (t *Tab) Press(tb testing.TB, key string) {
	tb.Helper()
	codes := map[string]int{"Tab": 9, "Enter": 13, "Escape": 27, " ": 32, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowRight": 39}
	event := object{"type": "keyDown", "key": key, "windowsVirtualKeyCode": codes[key]}
	if len(key) == 1 {
		event["text"] = key
	}
	if key == "Enter" {
		event["text"] = "\r"
	}
	for _, kind := range []string{"keyDown", "keyUp"} {
		event["type"] = kind
		if kind == "keyUp" {
			delete(event, "text")
		}
		if err := t.Call("Input.dispatchKeyEvent", event, nil); err != nil {
			tb.Fatalf("browser: %v", err)
		}
	}
}

// Screenshot takes a picture of the whole page, and keeps it as name.png if [Screenshots] says where.
func (t *Tab) Screenshot(tb testing.TB, name string) {
	tb.Helper()
	var shot struct {
		Data string `json:"data"`
	}
	err := t.Call("Page.captureScreenshot", object{"format": "png", "captureBeyondViewport": true, "clip": t.whole(tb)}, &shot)
	if err != nil {
		tb.Fatalf("browser: %v", err)
	}
	picture, err := base64.StdEncoding.DecodeString(shot.Data)
	folder := os.Getenv(Screenshots)
	if err == nil && folder != "" {
		if err = os.MkdirAll(folder, 0o755); err == nil {
			err = os.WriteFile(filepath.Join(folder, name+".png"), picture, 0o644) //nolint:gosec // a picture is no secret
		}
	}
	if err != nil || len(picture) == 0 {
		tb.Fatalf("browser: screenshot of %d bytes: %v", len(picture), err)
	}
}

func (t *Tab) whole(tb testing.TB) object {
	var height float64
	t.Eval(tb, "document.documentElement.scrollHeight", &height)
	return object{"x": 0, "y": 0, "width": t.screen.Width, "height": height, "scale": 1}
}

// Problems returns the page's problems so far: exceptions, errors on the console, and what the browser reports about
// the page's security and network.
func (t *Tab) Problems() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]string{}, t.problems...)
}

// Requests returns the addresses that the page has asked for.
func (t *Tab) Requests() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]string{}, t.requests...)
}

// note keeps an event that tests ask for.
func (t *Tab) note(m message) {
	var p struct {
		Type  string `json:"type"`
		Entry struct {
			Level, Text, URL string
		} `json:"entry"`
		Args []struct {
			Value       any    `json:"value"`
			Description string `json:"description"`
		} `json:"args"`
		Request struct {
			URL string `json:"url"`
		} `json:"request"`
		ExceptionDetails struct {
			Text      string `json:"text"`
			Exception struct {
				Description string `json:"description"`
			} `json:"exception"`
		} `json:"exceptionDetails"`
	}
	if json.Unmarshal(m.Params, &p) != nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case m.Method == "Runtime.exceptionThrown":
		t.problems = append(t.problems, p.ExceptionDetails.Text+" "+p.ExceptionDetails.Exception.Description)
	case m.Method == "Runtime.consoleAPICalled" && (p.Type == "error" || p.Type == "warning" || p.Type == "assert"):
		t.problems = append(t.problems, fmt.Sprint(p.Type, ": ", p.Args))
	case m.Method == "Log.entryAdded" && (p.Entry.Level == "error" || p.Entry.Level == "warning"):
		t.problems = append(t.problems, fmt.Sprint(p.Entry.Level, ": ", p.Entry.Text, " ", p.Entry.URL))
	case m.Method == "Network.requestWillBeSent":
		t.requests = append(t.requests, p.Request.URL)
	}
}
