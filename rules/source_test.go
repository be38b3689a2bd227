package rules_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/rules"
)

func document(a int) []byte { return fmt.Appendf(nil, `{"rules": {"p": {"A": %d, "B": %d}}}`, a, a) }

// follow follows a file, and returns a function that waits until the target has a number.
func follow(t *testing.T, path string) (p *plain, s *rules.Set, await func(a int)) {
	p = newPlain()
	s = newSet(t, map[string]rules.Target{"p": rules.Of(p)})
	w, err := s.Follow(rules.File(path), &rules.Options{Every: 10 * time.Millisecond})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.Close()) })
	return p, s, func(a int) {
		t.Helper()
		require.Eventually(t, func() bool { return p.Options().A == a }, 20*time.Second, time.Millisecond, "%+v", s.Stats())
	}
}

// A ConfigMap is mounted as a link to a file in a linked folder, and the kubelet exchanges the link of the folder. The peers
// that watch the file itself lose it with the first exchange.
func TestConfigMap(t *testing.T) {
	mount := t.TempDir()
	write := func(i int) {
		dir := fmt.Sprintf("..2026_11_23_%d", i)
		require.NoError(t, os.Mkdir(filepath.Join(mount, dir), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(mount, dir, "rules.json"), document(1000+i), 0o644))
		require.NoError(t, os.Symlink(dir, filepath.Join(mount, "..data_tmp")))
		old, _ := os.Readlink(filepath.Join(mount, "..data"))
		require.NoError(t, os.Rename(filepath.Join(mount, "..data_tmp"), filepath.Join(mount, "..data")))
		if old != "" {
			require.NoError(t, os.RemoveAll(filepath.Join(mount, old)))
		}
	}
	write(0)
	require.NoError(t, os.Symlink(filepath.Join("..data", "rules.json"), filepath.Join(mount, "rules.json")))
	path := filepath.Join(mount, "rules.json")
	p := newPlain()
	s := newSet(t, map[string]rules.Target{"p": rules.Of(p)})
	synctest.Test(t, func(t *testing.T) { // so that the pauses between reads cost no time
		w, err := s.Follow(rules.File(path), nil)
		require.NoError(t, err)
		for i := 1; i <= 100; i++ {
			write(i)
			time.Sleep(2 * time.Second)
			require.Equal(t, 1000+i, p.Options().A)
			require.NoError(t, s.Stats().Err)
		}
		require.NoError(t, w.Close())
	})
	require.EqualValues(t, 101, p.tunes.Load())
	require.Zero(t, s.Stats().Invalid)
}

func TestFileThatIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.json")
	p, s, await := follow(t, path)
	require.ErrorIs(t, s.Stats().Err, os.ErrNotExist)
	require.Equal(t, 1, p.Options().A)

	require.NoError(t, os.WriteFile(path, document(10), 0o600))
	await(10)
	require.NoError(t, os.WriteFile(path+".new", document(11), 0o600))
	require.NoError(t, os.Rename(path+".new", path))
	await(11)

	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return s.Stats().Err != nil }, 20*time.Second, time.Millisecond)
	require.ErrorContains(t, s.Stats().Err, "rules: the document is empty")
	text := document(12)
	_, _ = f.Write(text[:20])
	require.Eventually(t, func() bool { return strings.Contains(fmt.Sprint(s.Stats().Err), "unexpected end") }, 20*time.Second, time.Millisecond)
	require.Equal(t, 11, p.Options().A)
	_, _ = f.Write(text[20:])
	require.NoError(t, f.Close())
	await(12)

	require.NoError(t, os.Remove(path))
	require.Eventually(t, func() bool { return errors.Is(s.Stats().Err, os.ErrNotExist) }, 20*time.Second, time.Millisecond)
	require.NoError(t, os.Mkdir(path, 0o755))
	require.Eventually(t, func() bool { return strings.Contains(fmt.Sprint(s.Stats().Err), "must be a regular file") }, 20*time.Second, time.Millisecond)
	require.Equal(t, 12, p.Options().A)
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.WriteFile(path, document(13), 0o600))
	await(13)
}

func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "rules.json")
	write := rules.WriteFile(path)
	require.NoError(t, write(t.Context(), document(1)))
	require.NoError(t, os.Chmod(path, 0o640))
	require.NoError(t, write(t.Context(), document(2)))
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, document(2), text)
	info, err := os.Stat(path)
	require.NoError(t, err)
	if runtime.GOOS != "windows" {
		require.EqualValues(t, 0o640, info.Mode().Perm())
	}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1, "nothing else stays")

	require.ErrorContains(t, rules.WriteFile(dir)(t.Context(), nil), "must be a regular file to write to, got d")
	require.ErrorIs(t, rules.WriteFile(filepath.Join(dir, "none", "x"))(t.Context(), nil), os.ErrNotExist)
	require.NoError(t, os.Symlink(path, filepath.Join(dir, "link")))
	require.ErrorContains(t, rules.WriteFile(filepath.Join(dir, "link"))(t.Context(), nil), "must be a regular file to write to, got L")
}

// A file that changes between any two reads is never taken.
func TestFileThatNeverSettles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.json")
	synctest.Test(t, func(t *testing.T) {
		require.NoError(t, os.WriteFile(path, document(0), 0o600))
		read := rules.File(path)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		go func() {
			for i := 1; ctx.Err() == nil; i++ {
				time.Sleep(30 * time.Millisecond)
				_ = os.WriteFile(path, document(i), 0o600)
			}
		}()
		_, err := read(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "changes all the time")
		synctest.Wait()
		data, err := read(t.Context())
		require.NoError(t, err)
		require.True(t, bytes.HasPrefix(data, []byte(`{"rules"`)))
	})
}

// writeForEver is the program that TestKilledWriter kills: it writes valid documents in place, in pieces.
func writeForEver(path string) {
	for i := 0; ; i++ {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC|os.O_CREATE, 0o600)
		if err != nil {
			os.Exit(1)
		}
		for _, b := range document(100 + i%100) {
			_, _ = f.Write([]byte{b})
		}
		_ = f.Close()
	}
}

// Writers are killed in the middle of a document. Whatever they leave, the target has the numbers of one whole document.
func TestKilledWriter(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "rules.json")
	require.NoError(t, os.WriteFile(path, document(50), 0o600))
	p, s, await := follow(t, path)
	await(50)
	for broken, kills := 0, 0; broken < 3; kills++ {
		require.Less(t, kills, 100, "writers must be killed in the middle of a document")
		cmd := exec.CommandContext(t.Context(), self)
		cmd.Env = append(os.Environ(), "SPILLWAY_RULES_WRITER="+path)
		require.NoError(t, cmd.Start())
		require.Eventually(t, func() bool {
			text, err := os.ReadFile(path)
			return err == nil && !bytes.Contains(text, []byte("50"))
		}, 20*time.Second, time.Millisecond)
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait()
		time.Sleep(150 * time.Millisecond) // two reads of a real file
		left, err := os.ReadFile(path)
		require.NoError(t, err)
		o := p.Options()
		require.Equal(t, o.A, o.B, "the numbers of one document")
		if s.Check(left) != nil {
			broken++
		}
		require.NoError(t, os.WriteFile(path, document(50), 0o600))
	}
	require.NoError(t, os.WriteFile(path, document(60), 0o600))
	await(60)
}

func TestHTTP(t *testing.T) {
	var status, bodies atomic.Int64
	var body atomic.Pointer[string]
	var longTag atomic.Bool
	set := func(s string) { body.Store(&s) }
	set(string(document(10)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tag := fmt.Sprintf(`"%x"`, sha256.Sum256([]byte(*body.Load())))
		if longTag.Load() {
			tag = `"` + strings.Repeat("x", 1<<20) + `"`
		}
		w.Header().Set("ETag", tag)
		switch {
		case status.Load() != 0:
			w.WriteHeader(int(status.Load()))
		case r.Header.Get("If-None-Match") == tag:
			w.WriteHeader(http.StatusNotModified)
		default:
			bodies.Add(1)
			_, _ = io.WriteString(w, *body.Load())
		}
	}))
	defer server.Close()
	p := newPlain()
	s := newSet(t, map[string]rules.Target{"p": rules.Of(p)})
	w, err := s.Follow(rules.HTTP(server.URL, server.Client()), &rules.Options{Every: time.Hour})
	require.NoError(t, err)
	defer w.Close()
	require.Equal(t, 10, p.Options().A)
	require.NoError(t, w.Refresh(t.Context()))
	require.EqualValues(t, 1, bodies.Load(), "the second answer was 304")

	set(string(document(11)))
	require.NoError(t, w.Refresh(t.Context()))
	require.Equal(t, 11, p.Options().A)

	for _, code := range []int64{http.StatusNotFound, http.StatusServiceUnavailable, http.StatusNoContent} {
		status.Store(code)
		require.ErrorContains(t, w.Refresh(t.Context()), fmt.Sprintf("answered %d", code))
	}
	status.Store(0)
	set(strings.Repeat(" ", 2<<20))
	require.ErrorContains(t, w.Refresh(t.Context()), "at most 1048576 bytes")
	set(string(document(12)))
	require.NoError(t, w.Refresh(t.Context()))
	require.Equal(t, 12, p.Options().A)

	longTag.Store(true)
	for _, a := range []int{13, 14} {
		set(string(document(a)))
		require.NoError(t, w.Refresh(t.Context()), "a tag too long to send back")
		require.Equal(t, a, p.Options().A)
	}

	server.Close()
	require.Error(t, w.Refresh(t.Context()))
	_, err = rules.HTTP(":bad", nil)(t.Context())
	require.Error(t, err)
	require.Equal(t, 14, p.Options().A)
}
