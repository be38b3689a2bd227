package console_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/console"
	"github.com/spillway-go/spillway/internal/browser"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/rules"
	"github.com/spillway-go/spillway/stats"
)

// setOf returns a set of one limit, and the present limit.
func setOf(t *testing.T) (set *rules.Set, limit func() int64) {
	t.Helper()
	lim := spillway.Must(limiter.New(limiter.Concurrency{Limit: 50}))
	set, err := rules.New(map[string]rules.Target{"api": rules.Of(lim)})
	require.NoError(t, err)
	return set, func() int64 { return lim.PeekAt(time.Now()).Limit }
}

func postRules(page http.Handler, body string, change func(*http.Request)) (code int, text string) {
	r := httptest.NewRequest(http.MethodPost, "/debug/spillway/rules", strings.NewReader(body))
	r.RemoteAddr, r.Host = "127.0.0.1:4711", "localhost:8080"
	r.Header.Set("Content-Type", "application/json; charset=utf-8")
	r.Header.Set("Authorization", "ada")
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	page.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

func TestRulesCanBeChanged(t *testing.T) {
	set, limit := setOf(t)
	var log bytes.Buffer
	var written []byte
	page := console.New(map[string]stats.Source{"rules": set}, &console.Options{Rules: set, Control: &console.Control{
		Who:    func(r *http.Request) string { return r.Header.Get("Authorization") },
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Write: func(_ context.Context, document []byte) error {
			if strings.Contains(string(document), "99") {
				return errors.New("read-only file system")
			}
			written = document
			return set.Apply(document) // as a Watch would
		},
	}})
	defer page.Close()
	const to60 = `{"rules": {"api": {"Limit": 60}}}`
	quoted, err := json.Marshal(to60)
	require.NoError(t, err)

	code, text := postRules(page, `{"do": "check", "document": `+string(quoted)+`}`, nil)
	require.Equal(t, http.StatusOK, code, text)
	require.EqualValues(t, 50, limit())
	require.Empty(t, log.String(), "a check changes nothing")

	code, text = postRules(page, `{"do": "write", "document": `+string(quoted)+`}`, nil)
	require.Equal(t, http.StatusOK, code, text)
	require.JSONEq(t, to60, string(written))
	require.EqualValues(t, 60, limit())
	require.Regexp(t, `^time=\S+ level=INFO msg="console: rules changed" who=ada do=write version=0 peer=127.0.0.1:4711\n$`, log.String())
	var out struct {
		InForce  int `json:"in_force"`
		Who      string
		Write    bool
		Versions []struct {
			Number   int
			Document string
			Changes  []string
		}
	}
	require.NoError(t, json.Unmarshal([]byte(text), &out))
	require.Equal(t, 1, out.InForce)
	require.Equal(t, "ada", out.Who)
	require.True(t, out.Write)
	require.JSONEq(t, to60, out.Versions[0].Document)
	require.Equal(t, []string{"api.Limit: 50 → 60"}, out.Versions[0].Changes)

	log.Reset()
	for body, want := range map[string]string{
		`{"do": "write", "version": 0, "document": "{}"}`:                                      "the rules have changed: version 1 is in force",
		`{"do": "write", "version": 1, "document": "{}"}`:                                      `must have the field "rules"`,
		`{"do": "write", "version": 1, "document": "{\"rules\": {\"api\": {\"Limit\": 99}}}"}`: "read-only file system",
		`{"do": "pin", "version": 9}`:                                                          "version must be 0 or one of the last 32, got 9",
	} {
		code, text = postRules(page, body, nil)
		require.Equal(t, http.StatusUnprocessableEntity, code)
		require.Contains(t, text, want)
	}
	require.Equal(t, 4, strings.Count(log.String(), `level=WARN msg="console: rules not changed" who=ada`))
	for body, want := range map[string]int{
		`{"do": "check", "document": "{}"}`: http.StatusUnprocessableEntity, `{"do": "x"}`: http.StatusBadRequest, `{`: http.StatusBadRequest,
		`{"do": "check", "what": 1}`: http.StatusBadRequest, `{"document": "` + strings.Repeat("x", 4<<20) + `"}`: http.StatusBadRequest,
	} {
		code, text = postRules(page, body, nil)
		require.Equal(t, want, code, text)
	}
	require.EqualValues(t, 60, limit())

	code, text = postRules(page, `{"do": "pin", "version": 0}`, nil)
	require.Equal(t, http.StatusOK, code, text)
	require.EqualValues(t, 50, limit())
	code, text = postRules(page, `{"do": "unpin"}`, nil)
	require.Equal(t, http.StatusOK, code, text)
	require.EqualValues(t, 60, limit())
}

// Nobody changes the rules without a name, from a page of another origin, by a form, or without Control.
func TestRulesAreGuarded(t *testing.T) {
	set, limit := setOf(t)
	named := &console.Control{Who: func(r *http.Request) string { return r.Header.Get("Authorization") }}
	page := console.New(nil, &console.Options{Rules: set, Control: named})
	defer page.Close()
	const pin = `{"do": "pin", "version": 0}`
	for name, change := range map[string]func(*http.Request){
		"no name":          func(r *http.Request) { r.Header.Del("Authorization") },
		"another site":     func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") },
		"another origin":   func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") },
		"another machine":  func(r *http.Request) { r.RemoteAddr = "192.0.2.1:4711" },
		"another Host":     func(r *http.Request) { r.Host = "evil.example" },
		"through a proxy":  func(r *http.Request) { r.Header.Set("X-Forwarded-For", "192.0.2.1") },
		"a sandboxed page": func(r *http.Request) { r.Header.Set("Origin", "null") },
	} {
		code, text := postRules(page, pin, change)
		require.Equal(t, http.StatusForbidden, code, "%s: %s", name, text)
	}
	code, _ := postRules(page, pin, func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") })
	require.Equal(t, http.StatusUnsupportedMediaType, code)
	code, text := postRules(page, `{"do": "write", "document": "{\"rules\": {}}"}`, nil)
	require.Equal(t, http.StatusUnprocessableEntity, code)
	require.Contains(t, text, "this page cannot write the rules")
	require.Len(t, set.Versions(), 1)
	require.EqualValues(t, 50, limit())
	code, _ = postRules(page, pin, func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-origin") })
	require.Equal(t, http.StatusOK, code)

	for want, o := range map[int]*console.Options{
		http.StatusMethodNotAllowed: {Rules: set}, http.StatusNotFound: {Control: named}, http.StatusForbidden: {Rules: set, Control: &console.Control{}},
	} {
		page := console.New(nil, o)
		code, _ := postRules(page, pin, nil)
		require.Equal(t, want, code)
		require.NoError(t, page.Close())
	}
	reader := console.New(nil, &console.Options{Rules: set})
	defer reader.Close()
	w := get(reader, "/debug/spillway/rules")
	require.Equal(t, http.StatusOK, w.Code)
	require.Contains(t, w.Body.String(), `"who":""`)
	require.Contains(t, get(reader, "/debug/spillway/").Body.String(), `src="rules.js"`)
	plain := console.New(nil, nil)
	defer plain.Close()
	require.NotContains(t, get(plain, "/debug/spillway/").Body.String(), "rules.js")
	require.Equal(t, http.StatusNotFound, get(plain, "/debug/spillway/rules").Code)
}

// A person edits the rules in a browser: the file changes, the limit follows, and a mistake is explained and changes nothing.
func TestBrowserEditsRules(t *testing.T) {
	b := browser.Start(t)
	set, limit := setOf(t)
	path := filepath.Join(t.TempDir(), "rules.json")
	require.NoError(t, os.WriteFile(path, []byte(`{"rules": {"api": {"Limit": 70}}}`), 0o600))
	w, err := set.Follow(rules.File(path), &rules.Options{Name: path, Every: 100 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	defer w.Close()
	page := console.New(map[string]stats.Source{"rules": set}, &console.Options{Rules: set, Control: &console.Control{
		Who: func(*http.Request) string { return "ada" }, Write: rules.WriteFile(path), Logger: slog.New(slog.DiscardHandler),
	}})
	defer page.Close()
	mux := http.NewServeMux()
	mux.Handle("/debug/spillway/", page)
	server := httptest.NewServer(mux)
	defer server.Close()
	for _, name := range []string{"desk-light", "phone-dark"} {
		tab := b.Open(t, server.URL+"/debug/spillway/", screens[name])
		tab.Wait(t, `document.getElementById("document").value.includes('"Limit": 70')`, 10*time.Second)
		tab.Wait(t, `document.getElementById("rules-state").textContent == "Version 1 is in force. You are ada."`, 5*time.Second)
		readable(t, tab, name)
		var wide bool
		tab.Eval(t, `document.documentElement.scrollWidth > innerWidth`, &wide)
		require.False(t, wide, "%s: the page must not scroll sideways", name)
		tab.Screenshot(t, "console-rules-"+name)
	}

	tab := b.Open(t, server.URL+"/debug/spillway/", screens["desk-light"])
	tab.Wait(t, `document.getElementById("document").value`, 10*time.Second)
	edit := func(text string) {
		quoted, err := json.Marshal(text)
		require.NoError(t, err)
		tab.Eval(t, `(() => { const d = document.getElementById("document"); d.value = `+string(quoted)+`; d.dispatchEvent(new Event("input")); })()`, nil)
	}
	edit(`{"rules": {"api": {"Limit": -1}}}`)
	tab.Eval(t, `document.getElementById("write").click()`, nil)
	tab.Wait(t, `document.getElementById("answer").textContent.includes("Limit must be at least 1, got -1")`, 5*time.Second)
	require.EqualValues(t, 70, limit())

	edit(`{"rules": {"api": {"Limit": 80}}, "note": "<b>sale</b>"}`)
	tab.Eval(t, `document.getElementById("write").click()`, nil)
	tab.Wait(t, `document.getElementById("answer").textContent.startsWith("Written.")`, 5*time.Second)
	require.Eventually(t, func() bool { return limit() == 80 }, 10*time.Second, 10*time.Millisecond)
	tab.Wait(t, `document.querySelector("#rules tbody td.wrap").textContent == "<b>sale</b>; api.Limit: 70 → 80"`, 10*time.Second)
	tab.Wait(t, `[...document.querySelectorAll(".changes button")].some((b) => b.textContent.includes("the rules are of version 2 now, before of 1"))`, 10*time.Second)

	tab.Eval(t, `document.querySelector('[aria-label="Pin version 1"]').click()`, nil)
	require.Eventually(t, func() bool { return limit() == 70 }, 10*time.Second, 10*time.Millisecond)
	tab.Wait(t, `!document.getElementById("unpin").hidden`, 5*time.Second)
	tab.Eval(t, `document.getElementById("unpin").click()`, nil)
	require.Eventually(t, func() bool { return limit() == 80 }, 10*time.Second, 10*time.Millisecond)
}
