// Command gorilla serves two groups of routes with gorilla/mux, each behind its own gate.
package main

import (
	"io"
	"log"
	"net/http"

	"github.com/gorilla/mux"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/examples/internal/work"
	"github.com/spillway-go/spillway/internal/usage"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/middleware/httpgate"
	"github.com/spillway-go/spillway/shedder"
)

const about = `gorilla shows gates around two groups of routes of gorilla/mux.
Each group has its own gate: /api a shedder, and /admin a limit of ten requests
at once. /livez is outside both. The parameter "for" says how long a request
takes.`

func main() {
	listen := usage.Listen("gorilla", about, "http://localhost:8080/api/work?for=100ms")
	api := spillway.New(spillway.Must(shedder.New(nil)))
	admin := spillway.New(spillway.Must(limiter.New(limiter.Concurrency{Limit: 10})))
	log.Fatal(http.ListenAndServe(listen, newHandler(api, admin))) //nolint:gosec // an example needs no timeouts
}

// newHandler returns the routes of the service.
func newHandler(api, admin *spillway.Gate) http.Handler {
	r := mux.NewRouter()
	r.HandleFunc("/livez", func(http.ResponseWriter, *http.Request) {})
	group := r.PathPrefix("/api").Subrouter()
	group.Use(httpgate.Handler(api, nil))
	group.HandleFunc("/work", doWork)
	group.HandleFunc("/fail", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "broken", http.StatusInternalServerError) })
	group.HandleFunc("/panic", func(http.ResponseWriter, *http.Request) { panic("broken") })
	group = r.PathPrefix("/admin").Subrouter()
	group.Use(httpgate.Handler(admin, nil))
	group.HandleFunc("/work", doWork)
	return r
}

func doWork(w http.ResponseWriter, r *http.Request) {
	if work.For(r.Context(), r.FormValue("for")) == nil {
		_, _ = io.WriteString(w, "done\n")
	}
}
