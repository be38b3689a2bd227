package spillway_test

import (
	"bytes"
	"context"
	"fmt"
	"go/format"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/pages"
	"github.com/spillway-go/spillway/internal/race"
)

const (
	howtoLines = 60               // largest length of the program of a how-to page
	patience   = 30 * time.Second // far longer than a command of a page takes
)

// A session is a program of a page, with the commands that the page runs beside it.
type session struct {
	pages.Program

	commands []command
}

// A command is a line "$ COMMAND" of a block "```console", with the lines after it, which it prints. A line "..." stands for
// any lines, and "..." in a line for any text.
type command struct {
	line int // from 1
	text string
	want []string
}

// Each how-to has one complete program, short enough to read, and commands that try it.
func TestReadmeHowtosHaveShortPrograms(t *testing.T) {
	programs := map[string]int{}
	for _, p := range programsInPages(t) {
		if !p.Whole() {
			continue
		}
		programs[p.Page]++
		text := strings.Join(p.Lines, "\n") + "\n"
		formatted, err := format.Source([]byte(text))
		require.NoError(t, err, "%v", p)
		require.Equal(t, string(formatted), text, "%v: gofmt", p)
		if strings.HasPrefix(p.Page, "docs/howto/") {
			require.LessOrEqual(t, len(p.Lines), howtoLines, "%v: lines of the program", p)
		}
		if strings.HasPrefix(p.Page, "docs/howto/") || p.Page == "docs/start.md" {
			require.True(t, p.Run, "%v: no command tries the program", p)
		}
	}
	howtos, err := filepath.Glob("docs/howto/*.md")
	require.NoError(t, err)
	require.NotEmpty(t, howtos)
	for _, page := range howtos {
		require.Equal(t, 1, programs[filepath.ToSlash(page)], "%s: complete programs", page)
	}
}

// The programs of the pages run, and the commands beside them print what the pages say.
func TestProgramsInPagesRun(t *testing.T) {
	workspace := checkoutWorkspace(t)
	if testing.Short() {
		t.Skip("-short: the programs are only compiled")
	}
	if race.Enabled {
		t.Skip("the programs are built without the race detector, so the step alone of .ci/run runs them")
	}
	for _, tool := range []string{"sh", "curl"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}
	all := sessions(t)
	require.NotEmpty(t, all)
	ports := portMap{}
	binary := build(t, workspace, all, ports)
	for i, s := range all {
		t.Run(s.Page, func(t *testing.T) {
			t.Parallel()
			s.run(t, binary, i, ports[s.String()])
		})
	}
}

// sessions returns the programs of the pages that have commands beside them.
func sessions(t *testing.T) []session {
	t.Helper()
	var found []session
	blocks := map[string][]pages.Program{}
	for _, p := range programsInPages(t) {
		if p.Whole() {
			blocks[p.Page] = append(blocks[p.Page], p)
		}
	}
	for page, programs := range blocks {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		lines := strings.Split(strings.ReplaceAll(string(text), "\r\n", "\n"), "\n")
		for i, p := range programs {
			last := len(lines)
			if i+1 < len(programs) {
				last = programs[i+1].Line - 1
			}
			if commands := commandsIn(lines, p.Line, last); len(commands) > 0 {
				found = append(found, session{p, commands})
			}
		}
	}
	return found
}

// commandsIn returns the commands in the blocks "```console" of lines[from:to].
func commandsIn(lines []string, from, to int) []command {
	var found []command
	inside := false
	for i, line := range lines[from:to] {
		switch text, isCommand := strings.CutPrefix(line, "$ "); {
		case strings.HasPrefix(line, "```"):
			inside = line == "```console"
		case inside && isCommand:
			found = append(found, command{line: from + i + 1, text: text})
		case inside && len(found) > 0:
			last := &found[len(found)-1]
			last.want = append(last.want, line)
		}
	}
	return found
}

// build links all programs into one, which takes a fraction of the time of linking each. Its environment says which one runs.
func build(t *testing.T, workspace string, all []session, ports portMap) (binary string) {
	t.Helper()
	files := map[string]string{}
	var imports, cases strings.Builder
	for i, s := range all {
		folder := fmt.Sprintf("page_block_%d", i)
		program := ports.replace(t, s.Program)
		program = strings.Replace(program, "\npackage main\n", "\npackage page\n", 1)
		files[folder+"/main.go"] = strings.Replace(program, "\nfunc main() {", "\nfunc Main() {", 1)
		fmt.Fprintf(&imports, "\tp%d %q\n", i, modulePath+"/"+folder)
		fmt.Fprintf(&cases, "\tcase \"%d\":\n\t\tp%d.Main()\n", i, i)
	}
	files["page_run/main.go"] = fmt.Sprintf("package main\n\nimport (\n\t\"os\"\n\n%s)\n\nfunc main() {\n\tswitch os.Getenv(\"PROGRAM\") {\n%s\t}\n}\n",
		imports.String(), cases.String())
	binary = filepath.Join(t.TempDir(), "programs.exe")
	goOverlay(t, workspace, files, "build", "-o", binary, "./page_run")
	return binary
}

// run starts the program if it is a server, runs the commands, and ends the program.
func (s session) run(t *testing.T, binary string, number int, ports map[string]string) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	folder := t.TempDir()
	text := strings.Join(s.Lines, "\n")
	if port, ok := ports[":6379"]; ok {
		startRedis(ctx, t, folder, port)
	}
	env := append(os.Environ(), "PROGRAM="+strconv.Itoa(number), "NO_PROXY=*")
	if !strings.Contains(s.commands[0].text, "go run .") {
		var log output
		server := exec.CommandContext(ctx, binary)
		server.Dir, server.Env, server.Stdout, server.Stderr = folder, env, &log, &log
		require.NoError(t, server.Start())
		defer func() {
			require.NoError(t, server.Process.Signal(syscall.SIGTERM), "%s", log.String())
			err := server.Wait()
			if strings.Contains(text, "signal.NotifyContext") {
				require.NoError(t, err, "it ends by itself\n%s", log.String())
			}
			require.NotContains(t, log.String(), "panic")
		}()
		for name, port := range ports {
			if strings.Contains(text, name+`"`) {
				reach(ctx, t, port, &log)
			}
		}
	}
	for _, c := range s.commands {
		text := strings.ReplaceAll(c.text, "go run .", binary)
		for from, to := range ports {
			text = strings.ReplaceAll(text, from, to)
		}
		cmd := exec.CommandContext(ctx, "sh", "-c", text)
		cmd.Dir, cmd.Env = folder, env
		out, _ := cmd.CombinedOutput() // commands may fail, such as curl where nothing listens
		got := strings.ReplaceAll(string(out), "\r", "")
		for from, to := range ports {
			got = strings.ReplaceAll(got, to, from)
		}
		require.Regexp(t, pattern(c.want), got, "%s:%d: %s", s.Page, c.line, c.text)
	}
}

// pattern returns the regular expression of the lines that a command prints.
func pattern(want []string) string {
	var b strings.Builder
	b.WriteString(`\A`)
	for _, line := range want {
		if line == "..." {
			b.WriteString(`(?:.*\n)*?`)
			continue
		}
		b.WriteString(strings.ReplaceAll(regexp.QuoteMeta(line), `\.\.\.`, `.*`))
		b.WriteString(`\n?`) // the body of an answer may have no newline
	}
	b.WriteString(`\s*\z`)
	return b.String()
}

// A portMap gives each program ports of its own: by the program, and by the port in the page, such as ":8080".
type portMap map[string]map[string]string

var somePort = regexp.MustCompile(`:\d{4,5}\b`)

// replace returns the file of a program with its own ports.
func (p portMap) replace(t *testing.T, b pages.Program) string {
	t.Helper()
	mine := map[string]string{}
	p[b.String()] = mine
	head, body, _ := strings.Cut(goFile(b), "\n") // the head is the line directive
	return head + "\n" + somePort.ReplaceAllStringFunc(body, func(name string) string {
		if mine[name] == "" {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			_, port, err := net.SplitHostPort(listener.Addr().String())
			require.NoError(t, err)
			require.NoError(t, listener.Close()) // so that the program can listen there
			mine[name] = ":" + port
		}
		return mine[name]
	})
}

// reach waits until a server listens. It polls, because the server is another process.
func reach(ctx context.Context, t *testing.T, port string, log *output) {
	t.Helper()
	for {
		connection, err := new(net.Dialer).DialContext(ctx, "tcp", "127.0.0.1"+port)
		if err == nil {
			require.NoError(t, connection.Close())
			return
		}
		require.NoError(t, ctx.Err(), "nothing listens at %s\n%s", port, log.String())
		time.Sleep(20 * time.Millisecond)
	}
}

// startRedis starts a redis-server, which ends with the test.
func startRedis(ctx context.Context, t *testing.T, folder, port string) {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("redis-server is not installed")
	}
	var log output
	args := []string{"--port", port[1:], "--bind", "127.0.0.1", "--save", "", "--dir", folder}
	server := exec.CommandContext(ctx, "redis-server", args...)
	server.Stdout, server.Stderr = &log, &log
	require.NoError(t, server.Start())
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	})
	reach(ctx, t, port, &log)
}

// An output collects what a process prints, safe for concurrent use.
type output struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buffer.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buffer.String()
}
