package httpgate_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/gatetest"
	"github.com/spillway-go/spillway/middleware/httpgate"
)

func TestLoadReport(t *testing.T) {
	const key = "Endpoint-Load-Metrics"
	policy := &gatetest.Recorder{}
	for mode, want := range map[httpgate.LoadReport]map[string]string{
		httpgate.ReportOff:       {"": "", "text": "", "json": ""},
		httpgate.ReportOnRequest: {"": "", "text": "TEXT ", "json": "JSON {", "xml": ""},
		httpgate.ReportAlways:    {"": "TEXT ", "text": "TEXT ", "json": "JSON {", "xml": "TEXT "},
	} {
		m, err := httpgate.New(spillway.New(policy), &httpgate.Options{LoadReport: mode})
		require.NoError(t, err)
		h := m.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		for format, begins := range want {
			for _, refusal := range []*spillway.Rejection{nil, {Policy: "p", Reason: "full"}} {
				policy.Refuse(refusal)
				r := httptest.NewRequest(http.MethodGet, "/", nil)
				if format != "" {
					r.Header.Set("Endpoint-Load-Metrics-Format", format)
				}
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				if begins == "" {
					require.NotContains(t, w.Header(), key)
					continue
				}
				require.Len(t, w.Header()[key], 1)
				require.Contains(t, w.Header().Get(key), begins, "%v %s", mode, format)
			}
		}
	}
	_, err := httpgate.New(spillway.New(), &httpgate.Options{LoadReport: 9})
	require.EqualError(t, err, "httpgate: LoadReport: must be one of the constants, got 9")
}
