package browser

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"testing"
	"time"
)

// patience bounds each command to the browser, even on a busy machine.
const patience = 30 * time.Second

// A Browser is one process. It is safe for concurrent use.
type Browser struct {
	cmd  *exec.Cmd
	send io.WriteCloser
	done chan struct{} // closed when the browser has closed its pipe

	mu      sync.Mutex
	last    int
	waiting map[int]chan message // by the id of the command
	tabs    map[string]*Tab      // by the id of the session
}

// message is a command, an answer or an event.
type message struct {
	ID      int             `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Session string          `json:"sessionId,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

// Start starts a browser that ends with the test. It skips the test if no Chromium is installed, and with -short.
func Start(t testing.TB) *Browser {
	t.Helper()
	if testing.Short() {
		t.Skip("browser: left out with -short")
	}
	program := find()
	if program == "" || runtime.GOOS == "windows" {
		t.Skip("browser: THE PAGE IS NOT TESTED: there is no chromium in the PATH (apt-get install chromium)")
	}
	b, err := start(program, t.TempDir())
	if err != nil {
		t.Fatalf("browser: %v", err)
	}
	t.Cleanup(b.stop)
	return b
}

func find() string {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

func start(program, profile string) (*Browser, error) {
	in, send, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	receive, out, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	b := &Browser{send: send, done: make(chan struct{}), waiting: map[int]chan message{}, tabs: map[string]*Tab{}}
	b.cmd = exec.Command(program, "--headless=new", "--remote-debugging-pipe", "--user-data-dir="+profile,
		"--no-sandbox", // it opens pages of this repository only, and the sandbox does not run for root or in most containers
		"--disable-dev-shm-usage", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
		"--no-first-run", "--no-default-browser-check", "--hide-scrollbars", "--force-color-profile=srgb", "about:blank")
	b.cmd.ExtraFiles = []*os.File{in, out} // 3 and 4
	b.cmd.Env = append(os.Environ(), "HOME="+profile, "DBUS_SESSION_BUS_ADDRESS=disabled:")
	err = b.cmd.Start()
	_, _ = in.Close(), out.Close() // the browser has its own
	if err != nil {
		return nil, errors.Join(err, send.Close(), receive.Close())
	}
	go b.read(receive)
	return b, nil
}

// stop ends the browser and waits for it.
func (b *Browser) stop() {
	_ = b.call("", "Browser.close", nil, nil)
	_ = b.send.Close()
	killer := time.AfterFunc(5*time.Second, func() { _ = b.cmd.Process.Kill() })
	defer killer.Stop()
	_ = b.cmd.Wait()
	<-b.done
}

// read distributes the output of the browser until it ends.
func (b *Browser) read(r io.ReadCloser) {
	defer close(b.done)
	defer r.Close()
	lines := bufio.NewReader(r)
	for {
		text, err := lines.ReadBytes(0)
		if err != nil {
			return
		}
		var m message
		if json.Unmarshal(text[:len(text)-1], &m) != nil {
			continue
		}
		b.mu.Lock()
		answer, tab := b.waiting[m.ID], b.tabs[m.Session]
		delete(b.waiting, m.ID)
		b.mu.Unlock()
		switch {
		case answer != nil:
			answer <- m
		case tab != nil:
			tab.note(m)
		}
	}
}

// call sends a command and decodes its result into result, if that is not nil.
func (b *Browser) call(session, method string, params, result any) error {
	data, err := json.Marshal(params)
	if err != nil {
		return err
	}
	answer := make(chan message, 1)
	b.mu.Lock()
	b.last++
	m := message{ID: b.last, Method: method, Session: session}
	if params != nil {
		m.Params = data
	}
	b.waiting[m.ID] = answer
	data, err = json.Marshal(m)
	if err == nil {
		_, err = b.send.Write(append(data, 0))
	}
	b.mu.Unlock()
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	select {
	case m = <-answer:
	case <-b.done:
		return fmt.Errorf("%s: the browser has ended", method)
	case <-time.After(patience):
		return fmt.Errorf("%s: no answer within %v", method, patience)
	}
	if m.Error != nil {
		return fmt.Errorf("%s: %s", method, m.Error.Message)
	}
	if result == nil {
		return nil
	}
	return json.Unmarshal(m.Result, result)
}
