package console_test

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/console"
	"github.com/spillway-go/spillway/middleware/httpgate"
	"github.com/spillway-go/spillway/rules"
	"github.com/spillway-go/spillway/shedder"
	"github.com/spillway-go/spillway/stats"
)

// The page has a port of its own, on the loopback, so that it is outside the gate. A browser on the same machine opens
// http://localhost:8081/debug/spillway/.
func ExampleNew() { //nolint:testableexamples // it serves until it is stopped
	gate := spillway.New(spillway.Must(shedder.New(nil)))
	page := console.New(map[string]stats.Source{"api": gate}, nil)
	defer page.Close()

	debug := http.NewServeMux()
	debug.Handle("/debug/spillway/", page)
	go func() { log.Print(http.ListenAndServe("localhost:8081", debug)) }()

	hello := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") })
	log.Print(http.ListenAndServe(":8080", httpgate.Handler(gate, nil)(hello)))
}

// The page shows the rules. People who logged in at the proxy in front of it can change them.
func ExampleControl() { //nolint:testableexamples // it serves until it is stopped
	shed := spillway.Must(shedder.New(nil))
	set := spillway.Must(rules.New(map[string]rules.Target{"api": rules.Of(shed)}))
	const path = "/etc/shop/rules.json"
	w := spillway.Must(set.Follow(rules.File(path), &rules.Options{Name: path}))
	defer w.Close()

	page := console.New(map[string]stats.Source{"api": spillway.New(shed), "rules": set}, &console.Options{
		Allow: func(r *http.Request) bool { return r.Header.Get("X-Forwarded-User") != "" },
		Rules: set,
		Control: &console.Control{
			Who:   func(r *http.Request) string { return r.Header.Get("X-Forwarded-User") },
			Write: rules.WriteFile(path),
		},
	})
	defer page.Close()
	log.Print(http.ListenAndServe("10.0.0.7:8081", page)) // only the proxy can reach it
}

// The first answer has the sentence already, for readers without scripts.
func ExamplePage() {
	page := console.New(map[string]stats.Source{"api": spillway.New(), "jobs": spillway.New()}, nil)
	defer page.Close()
	server := httptest.NewServer(page)
	defer server.Close()

	res, err := http.Get(server.URL)
	if err != nil {
		panic(err)
	}
	defer res.Body.Close()
	html, err := io.ReadAll(res.Body)
	_, sentence, _ := strings.Cut(string(html), `aria-live="polite">`)
	sentence, _, _ = strings.Cut(sentence, "<")
	fmt.Println(res.Status, sentence, err)
	// Output: 200 OK Refusing nothing. <nil>
}

// Programs on other machines may read the page only if Allow says so.
func ExampleOptions_allow() {
	page := console.New(nil, &console.Options{
		Title: "Checkout",
		Allow: func(r *http.Request) bool {
			user, password, ok := r.BasicAuth()
			return ok && user == "operator" && password == "secret"
		},
	})
	defer page.Close()
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	for _, password := range []string{"guess", "secret"} {
		r.SetBasicAuth("operator", password)
		w := httptest.NewRecorder()
		page.ServeHTTP(w, r)
		fmt.Println(w.Code)
	}
	// Output:
	// 403
	// 200
}
