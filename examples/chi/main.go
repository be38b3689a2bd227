// Command chi serves two groups of routes with chi, each behind its own gate.
package main

import (
	"io"
	"log"
	"net/http"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/examples/internal/work"
	"github.com/spillway-go/spillway/internal/usage"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/middleware/httpgate"
	"github.com/spillway-go/spillway/shedder"
)

const about = `chi shows gates around two groups of routes of chi.
Each group has its own gate: /api a shedder, and /admin a limit of ten requests
at once. /livez is outside both. The parameter "for" says how long a request
takes.`

func main() {
	listen := usage.Listen("chi", about, "http://localhost:8080/api/work?for=100ms")
	api := spillway.New(spillway.Must(shedder.New(nil)))
	admin := spillway.New(spillway.Must(limiter.New(limiter.Concurrency{Limit: 10})))
	log.Fatal(http.ListenAndServe(listen, newHandler(api, admin))) //nolint:gosec // an example needs no timeouts
}

// newHandler returns the routes of the service.
func newHandler(api, admin *spillway.Gate) http.Handler {
	r := chi.NewRouter()
	r.Use(middleware.Recoverer)
	r.Get("/livez", func(http.ResponseWriter, *http.Request) {})
	r.Route("/api", func(r chi.Router) {
		r.Use(httpgate.Handler(api, nil))
		r.Get("/work", doWork)
		r.Get("/fail", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "broken", http.StatusInternalServerError) })
		r.Get("/panic", func(http.ResponseWriter, *http.Request) { panic("broken") })
	})
	r.Route("/admin", func(r chi.Router) {
		r.Use(httpgate.Handler(admin, nil))
		r.Get("/work", doWork)
	})
	return r
}

func doWork(w http.ResponseWriter, r *http.Request) {
	if work.For(r.Context(), r.FormValue("for")) == nil {
		_, _ = io.WriteString(w, "done\n")
	}
}
