package console_test

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/console"
	"github.com/spillway-go/spillway/policytest"
	"github.com/spillway-go/spillway/stats"
)

// get asks a page as a browser on the same machine does.
func get(page http.Handler, target string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, target, nil)
	r.RemoteAddr, r.Host = "127.0.0.1:4711", "localhost:8080"
	w := httptest.NewRecorder()
	page.ServeHTTP(w, r)
	return w
}

// answer is a snapshot as a browser reads it.
type answer struct {
	Boot     string
	Seq      int64
	Headline string
	State    string
	Notes    []string
	Changes  []struct{ Text string }
	Times    []int64
	Series   []struct {
		ID int
		Is *struct {
			Source, Name, Kind, Unit, Help string
			Labels                         map[string]string
		}
		V   []*float64
		All *float64
	}
}

func ask(t *testing.T, page http.Handler, since int64) (a answer) {
	t.Helper()
	w := get(page, fmt.Sprint("/debug/spillway/snapshot?since=", since))
	require.Equal(t, http.StatusOK, w.Code)
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &a), w.Body)
	return a
}

func TestPageTakesASampleASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := spillway.New(policytest.Refuse(spillway.Rejection{Policy: "full", Reason: "over quota"}))
		page := console.New(map[string]stats.Source{"api": gate}, nil)
		defer page.Close()
		time.Sleep(10500 * time.Millisecond)
		a := ask(t, page, 0)
		require.Equal(t, int64(11), a.Seq)
		require.Equal(t, "No requests.", a.Headline)

		for range 4 {
			_, err := gate.Enter(t.Context(), spillway.Request{})
			require.Error(t, err)
		}
		time.Sleep(time.Second)
		b := ask(t, page, a.Seq)
		require.Len(t, b.Times, 1)
		require.Equal(t, a.Boot, b.Boot)
		require.Equal(t, "Refusing 100 % for 1 s because the policy full says “over quota”.", b.Headline)
		require.Len(t, b.Changes, 1)

		require.NoError(t, page.Close())
		require.NoError(t, page.Close(), "twice is once")
		time.Sleep(time.Minute)
		require.Equal(t, b.Seq, ask(t, page, 0).Seq, "a closed page shows what it has")
	})
}

// faulty is a source that panics or blocks no one else.
type faulty func(yield func(stats.Metric) bool)

func (f faulty) Metrics() iter.Seq[stats.Metric] { return iter.Seq[stats.Metric](f) }

func TestPageSurvivesItsSources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var none *spillway.Gate
		sources := map[string]stats.Source{
			"good": spillway.New(), "nil": nil, "typed nil": none,
			"panics": faulty(func(yield func(stats.Metric) bool) {
				yield(stats.Metric{Name: "spillway.some.figure", Value: 7, Unit: "1"})
				panic("broken")
			}),
		}
		page := console.New(sources, nil)
		defer page.Close()
		delete(sources, "good") // the map was copied
		time.Sleep(3 * time.Second)
		a := ask(t, page, 0)
		require.Equal(t, []string{
			"Source nil cannot be read: it is nil.", "Source panics cannot be read: its Metrics panicked: broken.", "Source typed nil cannot be read: it is nil.",
		}, a.Notes)
		seen := map[string]bool{}
		for _, s := range a.Series {
			seen[s.Is.Source+" "+s.Is.Name] = true
		}
		require.True(t, seen["good spillway.gate.in_flight"])
		require.True(t, seen["panics spillway.some.figure"], "up to the panic")
	})
}

func TestPageShowsKeysOnlyIfAsked(t *testing.T) {
	source := faulty(func(yield func(stats.Metric) bool) {
		yield(stats.Metric{Name: "spillway.keyed.refused", Kind: stats.KindCounter, Labels: []stats.Label{{Name: "key", Value: "alice"}}, Value: 1})
	})
	for _, keys := range []bool{false, true} {
		page := console.New(map[string]stats.Source{"api": source}, &console.Options{Keys: keys})
		require.Equal(t, keys, strings.Contains(get(page, "/snapshot").Body.String(), "alice"))
		require.NoError(t, page.Close())
	}
}

func TestPageServesItsFiles(t *testing.T) {
	page := console.New(nil, &console.Options{Title: "Shop <b>"})
	defer page.Close()
	index := get(page, "/debug/spillway/")
	require.Equal(t, http.StatusOK, index.Code)
	html := index.Body.String()
	require.Contains(t, html, "<title>Shop &lt;b&gt;</title>")
	require.Contains(t, html, "There are no figures", "the first look has the sentence")
	require.Equal(t, "no-store", index.Header().Get("Cache-Control"))

	total := len(html)
	for _, link := range regexp.MustCompile(`(?:src|href)="([^"]+)"`).FindAllStringSubmatch(html, -1) {
		require.NotContains(t, link[1], "/", "relative, and beside the page")
		w := get(page, "/debug/spillway/"+link[1])
		require.Equal(t, http.StatusOK, w.Code, link[1])
		require.NotContains(t, w.Header().Get("Content-Type"), "octet", link[1])
		total += w.Body.Len()

		r := httptest.NewRequest(http.MethodGet, "/debug/spillway/"+link[1], nil)
		r.RemoteAddr, r.Host = "[::1]:4711", "[::1]"
		r.Header.Set("If-None-Match", w.Header().Get("ETag"))
		again := httptest.NewRecorder()
		page.ServeHTTP(again, r)
		require.Equal(t, http.StatusNotModified, again.Code, "a browser that has it need not read it again")
	}
	t.Logf("the page and its files have %d bytes", total)
	require.Less(t, total, 120_000)
	require.NotRegexp(t, `(?i)<script(?:>| [^>]*>)[^<]|<style|style=|\son\w+=`, html, "nothing inline, for the policy of the content")

	for _, name := range []string{"", "/debug/spillway/", "/debug/spillway/snapshot", "/debug/spillway/nothing"} {
		w := get(page, "http://localhost"+name)
		require.Contains(t, w.Header().Get("Content-Security-Policy"), "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'")
		require.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"))
		require.Equal(t, "same-origin", w.Header().Get("Cross-Origin-Resource-Policy"))
	}
	require.Equal(t, http.StatusNotFound, get(page, "/debug/spillway/nothing").Code)
	require.Equal(t, http.StatusNotFound, get(page, "/debug/spillway/index.html").Code)
}

func TestPageIsReadOnly(t *testing.T) {
	page := console.New(nil, nil)
	defer page.Close()
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodOptions} {
		r := httptest.NewRequest(method, "/", nil)
		r.RemoteAddr, r.Host = "127.0.0.1:1", "localhost"
		w := httptest.NewRecorder()
		page.ServeHTTP(w, r)
		require.Equal(t, http.StatusMethodNotAllowed, w.Code)
		require.Equal(t, "GET, HEAD", w.Header().Get("Allow"))
	}
}

func TestPageUnderAPrefix(t *testing.T) {
	page := console.New(nil, nil)
	defer page.Close()
	mux := http.NewServeMux()
	mux.Handle("/a/b", http.StripPrefix("/a/b", page))
	mux.Handle("/a/b/", http.StripPrefix("/a/b", page))
	server := httptest.NewServer(mux)
	defer server.Close()
	for _, path := range []string{"/a/b", "/a/b/", "/a/b?x=//evil.example/", "/a/b/snapshot"} {
		res, err := http.Get(server.URL + path)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		require.Equal(t, http.StatusOK, res.StatusCode, path)
		require.True(t, strings.HasPrefix(res.Request.URL.String(), server.URL+"/a/b/"), res.Request.URL)
	}
}

// Only programs on the same machine read the page, unless Allow says otherwise.
func TestPageAllows(t *testing.T) {
	page := console.New(nil, nil)
	defer page.Close()
	open := console.New(nil, &console.Options{Allow: func(r *http.Request) bool { return r.URL.Path == "/open/" }})
	defer open.Close()
	for _, c := range []struct {
		peer, host, header string
		code               int
	}{
		{"127.0.0.1:80", "localhost", "", 200},
		{"127.0.0.1:80", "LOCALHOST.:8080", "", 200},
		{"127.9.9.9:80", "127.0.0.1:8080", "", 200},
		{"[::1]:80", "[::1]:8080", "", 200},
		{"[::ffff:127.0.0.1]:80", "[::1]", "", 200},
		{"192.0.2.1:80", "localhost", "", 403},    // a stranger
		{"127.0.0.1:80", "evil.example", "", 403}, // a name that resolves to the loopback
		{"127.0.0.1:80", "localhost.evil.example:8080", "", 403},
		{"127.0.0.1:80", "127.0.0.1.evil.example", "", 403},
		{"127.0.0.1:80", "", "", 403},
		{"", "localhost", "", 403},
		{"@", "localhost", "", 403}, // a socket of the file system says nothing about its peer
		{"127.0.0.1:80", "localhost", "X-Forwarded-For", 403},
		{"127.0.0.1:80", "localhost", "Forwarded", 403},
		{"127.0.0.1:80", "localhost", "Via", 403},
	} {
		for _, path := range []string{"/", "/snapshot", "/console.js"} {
			r := httptest.NewRequest(http.MethodGet, path, nil)
			r.RemoteAddr, r.Host = c.peer, c.host
			if c.header != "" {
				r.Header.Set(c.header, "x")
			}
			w := httptest.NewRecorder()
			page.ServeHTTP(w, r)
			require.Equal(t, c.code, w.Code, "%+v %s", c, path)
			if c.code == 403 {
				require.Contains(t, w.Body.String(), "console.Options.Allow", "it says what to do")
			}
		}
	}
	stranger := httptest.NewRequest(http.MethodGet, "/open/", nil)
	w := httptest.NewRecorder()
	open.ServeHTTP(w, stranger)
	require.Equal(t, 200, w.Code)
	require.Equal(t, 403, get(open, "/").Code, "Allow alone decides")
}

func TestSnapshotIsCompressed(t *testing.T) {
	source := faulty(func(yield func(stats.Metric) bool) {
		for i := range 100 {
			if !yield(stats.Metric{Name: "spillway.some.figure", Labels: []stats.Label{{Name: "n", Value: fmt.Sprint(i)}}, Value: 1}) {
				return
			}
		}
	})
	page := console.New(map[string]stats.Source{"api": source}, nil)
	defer page.Close()
	plain := get(page, "/snapshot")
	require.Empty(t, plain.Header().Get("Content-Encoding"))
	r := httptest.NewRequest(http.MethodGet, "/snapshot", nil)
	r.RemoteAddr, r.Host = "127.0.0.1:1", "localhost"
	r.Header.Set("Accept-Encoding", "gzip, br")
	w := httptest.NewRecorder()
	page.ServeHTTP(w, r)
	require.Equal(t, "gzip", w.Header().Get("Content-Encoding"))
	require.Less(t, w.Body.Len(), plain.Body.Len()/5)
	z, err := gzip.NewReader(w.Body)
	require.NoError(t, err)
	text, err := io.ReadAll(z)
	require.NoError(t, err)
	require.True(t, json.Valid(text))
}
