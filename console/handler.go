package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"html/template"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-go/spillway/internal/report"
)

//go:embed web
var web embed.FS

// policy limits the page in a browser: it may fetch from its own origin, take scripts and styles from files, and nothing else.
const contentSecurity = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// file is a static part of the page.
type file struct {
	contentType, tag string
	data             []byte
}

// pageFiles returns the static files by name.
func pageFiles() map[string]file {
	out := map[string]file{}
	add := func(name string, data []byte, err error) {
		if err != nil {
			panic(err) // they are part of the program
		}
		sum := sha256.Sum256(data)
		types := map[string]string{".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
		out[name] = file{types[path.Ext(name)] + "; charset=utf-8", `"` + hex.EncodeToString(sum[:8]) + `"`, data}
	}
	for _, name := range []string{"console.css", "console.js", "rules.js", "icon.svg"} {
		data, err := web.ReadFile("web/" + name)
		add(name, data, err)
	}
	for _, name := range []string{"uplot.js", "uplot.css", "page.css", "chart.js"} {
		data, err := report.File(name)
		add(name, data, err)
	}
	return out
}

// ServeHTTP answers GET and HEAD: the page itself at the path that ends in a slash, its files, "snapshot" with the samples, and
// "rules". With [Options.Control], it answers POST to "rules".
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	head := w.Header()
	head.Set("Content-Security-Policy", contentSecurity)
	head.Set("Cross-Origin-Resource-Policy", "same-origin")
	head.Set("Referrer-Policy", "no-referrer")
	head.Set("X-Content-Type-Options", "nosniff")
	if !p.o.Allow(r) {
		http.Error(w, "This page may be read from the machine of the server only, through localhost. "+
			"To open it to others, set console.Options.Allow.", http.StatusForbidden)
		return
	}
	name := path.Base(r.URL.Path)
	if r.Method != http.MethodGet && r.Method != http.MethodHead && (r.Method != http.MethodPost || name != "rules" || p.o.Control == nil) {
		head.Set("Allow", "GET, HEAD")
		http.Error(w, "This page can only be read.", http.StatusMethodNotAllowed)
		return
	}
	switch f, ok := p.files[name]; {
	case r.URL.Path == "":
		redirect(w, r)
	case strings.HasSuffix(r.URL.Path, "/"):
		p.index(w)
	case name == "snapshot":
		p.snapshot(w, r)
	case name == "rules":
		p.rules(w, r)
	case ok:
		head.Set("Content-Type", f.contentType)
		head.Set("Cache-Control", "no-cache") // the browser asks whether it has changed
		head.Set("ETag", f.tag)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(f.data))
	default:
		http.NotFound(w, r)
	}
}

// redirect adds the slash that http.StripPrefix may have left out: relative addresses need it.
func redirect(w http.ResponseWriter, r *http.Request) {
	asked, _, _ := strings.Cut(r.RequestURI, "?")
	w.Header().Set("Location", "./"+path.Base(asked)+"/")
	w.WriteHeader(http.StatusTemporaryRedirect)
}

// index answers with the page. The page already has the sentence, for a first look and for readers without scripts.
func (p *Page) index(w http.ResponseWriter) {
	s := p.take(0, false)
	var page bytes.Buffer
	t, err := template.ParseFS(web, "web/index.html")
	if err == nil {
		err = t.Execute(&page, struct {
			Title string
			Rules bool
			snapshot
		}{p.o.Title, p.o.Rules != nil, s})
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(page.Bytes())
}

// take returns a snapshot, with or without the samples.
func (p *Page) take(since int64, samples bool) snapshot {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !samples {
		since = p.history.seq
	}
	return p.history.snapshot(since, time.Now(), p.problems)
}

// smallest answer that is worth compressing.
const worthGzip = 4 << 10

// snapshot answers with the samples after ?since=SEQ, or all.
func (p *Page) snapshot(w http.ResponseWriter, r *http.Request) {
	since, err := strconv.ParseInt(r.URL.Query().Get("since"), 10, 64)
	if err != nil {
		since = 0
	}
	data, err := json.Marshal(p.take(since, true))
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	head := w.Header()
	head.Set("Content-Type", "application/json")
	head.Set("Cache-Control", "no-store")
	if len(data) < worthGzip || !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		_, _ = w.Write(data)
		return
	}
	head.Set("Content-Encoding", "gzip")
	head.Set("Vary", "Accept-Encoding")
	z, _ := gzip.NewWriterLevel(w, gzip.BestSpeed) // the level is valid
	_, _ = z.Write(data)
	_ = z.Close()
}
