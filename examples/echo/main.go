// Command echo serves two groups of routes with Echo, each behind its own gate.
package main

import (
	"errors"
	"log"
	"net/http"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/examples/internal/work"
	"github.com/spillway-go/spillway/internal/usage"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/middleware/httpgate"
	"github.com/spillway-go/spillway/shedder"
)

const about = `echo shows gates around two groups of routes of Echo.
Each group has its own gate: /api a shedder, and /admin a limit of ten requests
at once. /livez is outside both. The parameter "for" says how long a request
takes.`

func main() {
	listen := usage.Listen("echo", about, "http://localhost:8080/api/work?for=100ms")
	api := spillway.New(spillway.Must(shedder.New(nil)))
	admin := spillway.New(spillway.Must(limiter.New(limiter.Concurrency{Limit: 10})))
	log.Fatal(http.ListenAndServe(listen, newHandler(api, admin))) //nolint:gosec // an example needs no timeouts
}

// newHandler returns the routes of the service.
func newHandler(api, admin *spillway.Gate) http.Handler {
	e := echo.New()
	e.Use(middleware.Recover())
	e.GET("/livez", func(c *echo.Context) error { return c.NoContent(http.StatusOK) })
	group := e.Group("/api", echo.WrapMiddleware(httpgate.Handler(api, nil)), answered)
	group.GET("/work", doWork)
	group.GET("/fail", func(*echo.Context) error { return errors.New("broken") })
	group.GET("/panic", func(*echo.Context) error { panic("broken") })
	e.Group("/admin", echo.WrapMiddleware(httpgate.Handler(admin, nil)), answered).GET("/work", doWork)
	return e
}

// answered answers an error of the handler at once. Echo would do so after the gate has ended the request, as a success.
func answered(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c *echo.Context) error {
		if err := next(c); err != nil {
			c.Echo().HTTPErrorHandler(c, err)
		}
		return nil
	}
}

func doWork(c *echo.Context) error {
	if err := work.For(c.Request().Context(), c.QueryParam("for")); err != nil {
		return err
	}
	return c.String(http.StatusOK, "done\n")
}
