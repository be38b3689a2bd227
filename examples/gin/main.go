// Command gin serves two groups of routes with Gin, each behind its own gate.
package main

import (
	"log"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/examples/internal/work"
	"github.com/spillway-go/spillway/internal/usage"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/middleware/httpgate"
	"github.com/spillway-go/spillway/shedder"
)

const about = `gin shows gates around two groups of routes of Gin.
Each group has its own gate: /api a shedder, and /admin a limit of ten requests
at once. /livez is outside both. The parameter "for" says how long a request
takes.`

func main() {
	listen := usage.Listen("gin", about, "http://localhost:8080/api/work?for=100ms")
	api := spillway.New(spillway.Must(shedder.New(nil)))
	admin := spillway.New(spillway.Must(limiter.New(limiter.Concurrency{Limit: 10})))
	log.Fatal(http.ListenAndServe(listen, newHandler(api, admin))) //nolint:gosec // an example needs no timeouts
}

// newHandler returns the routes of the service.
func newHandler(api, admin *spillway.Gate) http.Handler {
	r := gin.New()
	r.Use(gin.Recovery())
	r.GET("/livez", func(c *gin.Context) { c.Status(http.StatusOK) })
	group := r.Group("/api", gated(api))
	group.GET("/work", doWork)
	group.GET("/fail", func(c *gin.Context) { c.String(http.StatusInternalServerError, "broken") })
	group.GET("/panic", func(*gin.Context) { panic("broken") })
	r.Group("/admin", gated(admin)).GET("/work", doWork)
	return r
}

// gated puts gate in front of the handlers behind it.
func gated(gate *spillway.Gate) gin.HandlerFunc {
	return func(c *gin.Context) {
		permit, err := gate.Enter(c.Request.Context(), spillway.Request{})
		if err != nil {
			httpgate.WriteRefusal(c.Writer, c.Request, err)
			c.Abort()
			return
		}
		defer permit.Done(spillway.Failure) // covers panics
		c.Next()
		permit.Done(httpgate.DefaultOutcome(c.Request.Context(), c.Writer.Status()))
	}
}

func doWork(c *gin.Context) {
	if work.For(c.Request.Context(), c.Query("for")) == nil {
		c.String(http.StatusOK, "done\n")
	}
}
