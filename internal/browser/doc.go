// Package browser lets tests look at a page in a real, headless Chromium.
//
//	tab := browser.Start(t).Open(t, server.URL, browser.Screen{Width: 360, Height: 740})
//	tab.Wait(t, `document.title != ""`)
//	tab.Screenshot(t, "phone")
//	require.Empty(t, tab.Problems())
//
// It speaks the DevTools protocol through a pair of pipes, so it needs no additional module. Tests skip where there is no
// Chromium.
package browser
