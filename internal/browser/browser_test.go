package browser_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/browser"
)

func TestTabSeesThePage(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		w.Header().Set("Content-Security-Policy", "default-src 'none'; script-src 'unsafe-inline'")
		_, _ = w.Write([]byte(`<!DOCTYPE html><title>one</title><p style="color:red">text</p><button onclick="document.title='pressed'">x</button>
			<script>console.error("broken", 7); setTimeout(() => { document.title = "two"; throw new Error("thrown") }, 100)</script>`))
	}))
	t.Cleanup(server.Close)
	tab := browser.Start(t).Open(t, server.URL, browser.Screen{Width: 360, Height: 500, Dark: true})
	tab.Wait(t, `document.title == "two"`, 10*time.Second)
	var width int
	var dark bool
	tab.Eval(t, "innerWidth", &width)
	tab.Eval(t, `matchMedia("(prefers-color-scheme: dark)").matches`, &dark)
	require.Equal(t, 360, width)
	require.True(t, dark)
	tab.Press(t, "Tab")
	tab.Press(t, "Enter")
	tab.Wait(t, `document.title == "pressed"`, 10*time.Second)
	tab.Screenshot(t, "browser")
	require.Equal(t, server.URL+"/", tab.Requests()[0])
	require.Eventually(t, func() bool { return len(tab.Problems()) >= 3 }, 10*time.Second, 10*time.Millisecond)
	problems := tab.Problems()
	require.Contains(t, problems[0]+problems[1]+problems[2], "broken")
	require.Contains(t, problems[0]+problems[1]+problems[2], "Content Security Policy")
	require.Contains(t, problems[0]+problems[1]+problems[2], "thrown")
}
