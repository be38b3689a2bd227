package overload

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/middleware/httpgate"
	"github.com/spillway-go/spillway/shedder"
)

// shed is the shedder as the examples use it.
func shed(next http.Handler) (http.Handler, StatsFunc, error) {
	s, err := shedder.New(nil)
	if err != nil {
		return nil, nil, err
	}
	gate := spillway.New(s)
	return httpgate.Handler(gate, nil)(next), func() View { return Shedding(gate, s) }, nil
}

// The page of the guarded server shows the overload while it is measured.
func TestLiveShowsTheGuardedServer(t *testing.T) {
	if testing.Short() {
		t.Skip("drives a real server for some seconds")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := l.Addr().String()
	require.NoError(t, l.Close())

	c := testConfig()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	ended := make(chan error, 1)
	var out bytes.Buffer
	go func() {
		ended <- c.Run(ctx, []string{"-guards", "none,shed", "-loads", "4", "-seconds", "6", "-settle", "0", "-recheck=false", "-report", "none", "-live", addr}, &out)
	}()
	said := ""
	for said == "" {
		select {
		case err := <-ended:
			t.Fatalf("the run ended, and the page showed no refusals: %v\n%s", err, out.String())
		case <-time.After(100 * time.Millisecond): // a real server in another process
			if s := headlineAt(addr); strings.HasPrefix(s, "Refusing ") && !strings.HasPrefix(s, "Refusing nothing") {
				said = s
			}
		}
	}
	t.Log(said)
	require.Regexp(t, `^Refusing \d+ % for \d+ s because `, said)
	require.NoError(t, <-ended)
	require.Contains(t, out.String(), "http://"+addr+"/")
}

// headlineAt returns the sentence of the page at addr, or "" if there is no page at present.
func headlineAt(addr string) string {
	res, err := http.Get("http://" + addr + "/snapshot?since=0")
	if err != nil {
		return ""
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	var s struct{ Headline string }
	if err != nil || json.Unmarshal(text, &s) != nil {
		return ""
	}
	return s.Headline
}

func TestLiveAddressThatCannotBe(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	for _, addr := range []string{l.Addr().String(), "nowhere", "127.0.0.1:x", "192.0.2.1:80"} {
		_, err := (&Config{}).parse([]string{"-live", addr}, io.Discard)
		require.ErrorContains(t, err, "overload: -live: ", addr)
	}
}
