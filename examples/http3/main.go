// Command http3 serves HTTP/3, HTTP/2 and HTTP/1.1 behind one gate.
package main

import (
	"log"
	"net/http"

	"github.com/quic-go/quic-go/http3"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/examples/internal/work"
	"github.com/spillway-go/spillway/internal/usage"
	"github.com/spillway-go/spillway/middleware/httpgate"
	"github.com/spillway-go/spillway/shedder"
)

const about = `http3 shows one gate in front of HTTP/3, HTTP/2 and HTTP/1.1.
It needs a certificate in the files cert.pem and key.pem of this folder.
This makes one for tests:

go run "$(go env GOROOT)/src/crypto/tls/generate_cert.go" --host localhost`

func main() {
	listen := usage.Listen("http3", about, "https://localhost:8443/work?for=100ms")
	gate := spillway.New(spillway.Must(shedder.New(nil)))
	log.Fatal(http3.ListenAndServeTLS(listen, "cert.pem", "key.pem", newHandler(gate)))
}

// newHandler returns the service behind gate. It is the same for every version of HTTP.
func newHandler(gate *spillway.Gate) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/livez", func(http.ResponseWriter, *http.Request) {})
	mux.Handle("GET /work", httpgate.Handler(gate, nil)(http.HandlerFunc(doWork)))
	return mux
}

func doWork(w http.ResponseWriter, r *http.Request) {
	if err := work.For(r.Context(), r.URL.Query().Get("for")); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
}
