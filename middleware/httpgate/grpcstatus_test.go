package httpgate_test

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/gatetest"
	"github.com/spillway-go/spillway/middleware/httpgate"
)

// A gRPC handler behind net/http answers 200 to everything; how it went stands in the trailer.
func TestOutcomeOfGRPC(t *testing.T) {
	want := map[string]spillway.Outcome{
		"0": spillway.Success, "1": spillway.Ignored, "2": spillway.Failure, "3": spillway.Ignored, "4": spillway.Failure,
		"5": spillway.Ignored, "6": spillway.Ignored, "7": spillway.Ignored, "8": spillway.Dropped, "9": spillway.Ignored,
		"10": spillway.Ignored, "11": spillway.Ignored, "12": spillway.Ignored, "13": spillway.Failure, "14": spillway.Dropped,
		"15": spillway.Failure, "16": spillway.Ignored,
		"17": spillway.Failure, "-1": spillway.Failure, "": spillway.Failure, "x": spillway.Failure,
	}
	for _, trailer := range []string{"Grpc-Status", http.TrailerPrefix + "Grpc-Status"} {
		for code, outcome := range want {
			require.Equal(t, outcome, outcomeOf(t, http.MethodPost, "application/grpc+proto", trailer, code), "%s: %q", trailer, code)
		}
	}
	require.Equal(t, spillway.Failure, outcomeOf(t, http.MethodPost, "application/grpc-web", "Grpc-Status", "13"))
	require.Equal(t, spillway.Success, outcomeOf(t, http.MethodPost, "application/grpc", "Other", "13"), "no status")
	require.Equal(t, spillway.Success, outcomeOf(t, http.MethodPost, "application/json", "Grpc-Status", "13"), "not gRPC")
	require.Equal(t, spillway.Success, outcomeOf(t, http.MethodPost, "", "Grpc-Status", "13"), "not gRPC")
	require.Equal(t, spillway.Success, outcomeOf(t, http.MethodGet, "application/grpc", "Grpc-Status", "13"), "not gRPC")
}

// A message that gRPC cannot read or write is its caller's fault. It has the code of a bug or of an overload.
func TestOutcomeOfGRPCForABadMessage(t *testing.T) {
	for _, c := range []struct {
		code, text string
		want       spillway.Outcome
	}{
		{"13", "grpc: failed to unmarshal the received message: proto:%C2%A0cannot parse", spillway.Ignored},
		{"13", "unexpected EOF", spillway.Ignored},
		{"8", "grpc: received message larger than max (131076 vs. 65536)", spillway.Ignored},
		{"8", "trying to send message larger than max (131076 vs. 65536)", spillway.Ignored},
		{"13", "bug", spillway.Failure},
		{"8", "overloaded", spillway.Dropped},
		{"14", "unexpected EOF", spillway.Dropped},
		{"2", "unexpected EOF of a file", spillway.Failure},
	} {
		for _, prefix := range []string{"", http.TrailerPrefix} {
			p := &gatetest.Recorder{}
			h := middleware(t, nil, p).Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusOK)
				w.Header()[prefix+"Grpc-Status"], w.Header()[prefix+"Grpc-Message"] = []string{c.code}, []string{c.text}
			}))
			for _, contentType := range []string{"application/grpc", "text/plain"} {
				r := httptest.NewRequest(http.MethodPost, "/", nil)
				r.Header.Set("Content-Type", contentType)
				h.ServeHTTP(httptest.NewRecorder(), r)
			}
			require.Equal(t, []spillway.Outcome{c.want, spillway.Success}, p.Outcomes(), "%s %q", c.code, c.text)
		}
	}
}

// A timeout of 0 is one: gRPC and Connect end the call at once.
func TestOutcomeOfATimeoutOfNothing(t *testing.T) {
	for _, o := range []*httpgate.Options{nil, byClient(httpgate.ClientTimeout)} {
		p := &gatetest.Recorder{}
		h := middleware(t, o, p).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
				w.Header().Set(http.TrailerPrefix+"Grpc-Status", "4")
				return
			}
			w.WriteHeader(http.StatusGatewayTimeout)
		}))
		for _, c := range []struct {
			header, value string
			want          spillway.Outcome
		}{
			{"Grpc-Timeout", "0n", spillway.Ignored},
			{"Grpc-Timeout", "00000000H", spillway.Ignored},
			{"Grpc-Timeout", "", spillway.Failure},
			{"Grpc-Timeout", "n", spillway.Failure},
			{"Connect-Timeout-Ms", "0", spillway.Ignored},
			{"Connect-Timeout-Ms", "", spillway.Failure},
		} {
			r := httptest.NewRequest(http.MethodPost, "/", nil)
			r.Header.Set("Content-Type", map[string]string{"Grpc-Timeout": "application/grpc"}[c.header])
			r.Header.Set(c.header, c.value)
			h.ServeHTTP(httptest.NewRecorder(), r)
			require.Equal(t, c.want, p.Outcomes()[len(p.Outcomes())-1], "%s: %q", c.header, c.value)
		}
	}
}

// outcomeOf returns the outcome of a request that is answered with 200 and a header.
func outcomeOf(t *testing.T, method, contentType, header, value string) spillway.Outcome {
	t.Helper()
	p := &gatetest.Recorder{}
	h := middleware(t, nil, p).Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
		w.Header()[header] = []string{value}
	}))
	r := httptest.NewRequest(method, "/", nil)
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	h.ServeHTTP(httptest.NewRecorder(), r)
	require.Len(t, p.Outcomes(), 1)
	return p.Outcomes()[0]
}

func TestStatusOfGRPCReachesOutcome(t *testing.T) {
	statuses := map[int]int{}
	h := middleware(t, &httpgate.Options{Outcome: func(_ *http.Request, status int) spillway.Outcome {
		statuses[status]++
		return spillway.Success
	}}).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if code := r.URL.Path[1:]; code != "" {
			w.Header().Set("Grpc-Status", code)
		}
		w.WriteHeader(http.StatusOK)
	}))
	send := func(path string) {
		r := httptest.NewRequest(http.MethodPost, path, nil)
		r.Header.Set("Content-Type", "application/grpc")
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
	for code := range 17 {
		send("/" + strconv.Itoa(code))
	}
	send("/") // without a status
	require.Equal(t, map[int]int{
		200: 2, 400: 3, 401: 1, 403: 1, 404: 2, 409: 2, 429: 1, 499: 1, 500: 3, 503: 1, 504: 1,
	}, statuses)
}
