package examples_test

import (
	"bytes"
	"context"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Each program that only serves says in its help how to ask it, and answers that with 200.
func TestServersAnswerWhatTheirHelpSays(t *testing.T) {
	for _, tool := range []string{"sh", "curl", "go"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}
	for _, name := range []string{"chi", "connect", "echo", "fiber", "gin", "gorilla", "http3"} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			folder := t.TempDir()
			run := func(command ...string) string {
				cmd := exec.CommandContext(ctx, command[0], command[1:]...)
				cmd.Dir = folder
				out, err := cmd.CombinedOutput()
				require.NoError(t, err, "%s\n%s", command, out)
				return string(out)
			}
			program := filepath.Join(folder, name+".exe")
			out, err := exec.CommandContext(ctx, "go", "build", "-o", program, "./"+name).CombinedOutput()
			require.NoError(t, err, "%s", out)
			help := run(program, "-h")
			for line := range strings.Lines(help) {
				if strings.HasPrefix(line, "go run ") { // makes the certificate
					run("sh", "-c", line)
				}
			}
			_, ask, found := strings.Cut(help, "While it runs, ask it:\n\n")
			require.True(t, found, "%s", help)
			ask, _, _ = strings.Cut(ask, "\n")

			listener, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			address := listener.Addr().String()
			require.NoError(t, listener.Close()) // so that the program can listen there
			var log bytes.Buffer
			server := exec.CommandContext(ctx, program, "-listen", address)
			server.Dir, server.Stdout, server.Stderr = folder, &log, &log
			require.NoError(t, server.Start())
			defer func() { _, _ = server.Process.Kill(), server.Wait() }()
			ask = strings.NewReplacer("localhost:8080", address, "localhost:8443", address, "curl", "curl -s --retry 20 --retry-connrefused --retry-delay 1 --noproxy '*'").Replace(ask)
			answer := run("sh", "-c", ask)
			require.Regexp(t, `^HTTP/\S+ 200\b`, answer)
		})
	}
}
