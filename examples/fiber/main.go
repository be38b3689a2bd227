// Command fiber serves two groups of routes with Fiber, each behind its own gate.
package main

import (
	"errors"
	"log"

	"github.com/gofiber/fiber/v3"
	recovery "github.com/gofiber/fiber/v3/middleware/recover"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/examples/internal/work"
	"github.com/spillway-go/spillway/internal/usage"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/middleware/httpgate"
	"github.com/spillway-go/spillway/shedder"
)

const about = `fiber shows gates around two groups of routes of Fiber, which does not use net/http.
Each group has its own gate: /api a shedder, and /admin a limit of ten requests
at once. /livez is outside both. The parameter "for" says how long a request
takes.`

func main() {
	listen := usage.Listen("fiber", about, "http://localhost:8080/api/work?for=100ms")
	api := spillway.New(spillway.Must(shedder.New(nil)))
	admin := spillway.New(spillway.Must(limiter.New(limiter.Concurrency{Limit: 10})))
	log.Fatal(newApp(api, admin).Listen(listen))
}

// newApp returns the routes of the service.
func newApp(api, admin *spillway.Gate) *fiber.App {
	app := fiber.New()
	app.Use(recovery.New()) // without it, a panic ends the process
	app.Get("/livez", func(c fiber.Ctx) error { return c.SendStatus(fiber.StatusOK) })
	group := app.Group("/api", gated(api))
	group.Get("/work", doWork)
	group.Get("/fail", func(fiber.Ctx) error { return errors.New("broken") })
	group.Get("/panic", func(fiber.Ctx) error { panic("broken") })
	app.Group("/admin", gated(admin)).Get("/work", doWork)
	return app
}

// gated puts gate in front of the handlers behind it.
func gated(gate *spillway.Gate) fiber.Handler {
	return func(c fiber.Ctx) error {
		permit, err := gate.Enter(c.Context(), spillway.Request{})
		if err != nil {
			status, body := httpgate.Problem(err, c.Set)
			return c.Status(status).SendString(body)
		}
		defer permit.Done(spillway.Failure) // covers panics
		if err = c.Next(); err != nil {
			err = c.App().ErrorHandler(c, err) // now, so that the gate sees its status
		}
		permit.Done(httpgate.DefaultOutcome(c.Context(), c.Response().StatusCode()))
		return err
	}
}

// Fiber does not notice when a client is gone: the context of the request lasts until its handler returns.
func doWork(c fiber.Ctx) error {
	if err := work.For(c.Context(), c.Query("for")); err != nil {
		return err
	}
	return c.SendString("done\n")
}
