package state

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/shedder"
)

func newShedder(t *testing.T) *shedder.Shedder {
	t.Helper()
	s, err := shedder.New(nil)
	require.NoError(t, err)
	return s
}

func TestPath(t *testing.T) {
	t.Setenv("STATE_DIRECTORY", "/var/lib/spillwayd:/other")
	require.Empty(t, Path("off", "a"))
	require.Equal(t, "/tmp/x", Path("/tmp/x", "a"))
	one, two := Path(Auto, "a", "b"), Path(Auto, "ab")
	require.Equal(t, filepath.FromSlash("/var/lib/spillwayd"), filepath.Dir(one))
	require.NotEqual(t, one, two, "each proxy has its own")
	require.Equal(t, one, Path(Auto, "a", "b"))
}

func TestALaterProcessResumes(t *testing.T) {
	var log bytes.Buffer
	path := filepath.Join(t.TempDir(), "deeper", "state.json")
	logger := slog.New(slog.NewTextHandler(&log, nil))
	before := newShedder(t)
	require.NoError(t, before.Resume(200, 20*time.Millisecond))
	k := &Keeper{path: path, shed: before, logger: logger}
	now := time.Now()
	require.NoError(t, k.save(now))

	for age, want := range map[time.Duration]float64{time.Minute: 200, old + time.Second: 0, -time.Hour: 0} {
		after := newShedder(t)
		require.NoError(t, (&Keeper{path: path, shed: after, logger: logger}).resume(now.Add(age)))
		rate, _ := after.Learnt()
		require.InDelta(t, want, rate, 1e-9, "%v later", age)
	}
	stamp := func() time.Time {
		info, err := os.Stat(path)
		require.NoError(t, err)
		return info.ModTime()
	}
	first := stamp()
	require.NoError(t, os.Chtimes(path, first.Add(-time.Hour), first.Add(-time.Hour)))
	require.NoError(t, k.save(now.Add(time.Minute)))
	require.Equal(t, first.Add(-time.Hour).Unix(), stamp().Unix(), "nothing new was learnt")
	require.NoError(t, k.save(now.Add(old/2)))
	require.NotEqual(t, first.Add(-time.Hour).Unix(), stamp().Unix(), "but the file must not grow old")
}

func TestFilesThatAreNoUse(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"empty": "", "text": "hello", "nonsense": `{"at": "2999-01-01T00:00:00Z", "rate_per_second": -1}`} {
		var log bytes.Buffer
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		shed := newShedder(t)
		Keep(path, shed, slog.New(slog.NewTextHandler(&log, nil))).Close()
		rate, _ := shed.Learnt()
		require.Zero(t, rate, name)
	}
	var log bytes.Buffer
	file := filepath.Join(dir, "text", "state.json") // its folder is a file
	shed := newShedder(t)
	require.NoError(t, shed.Resume(1, time.Second))
	k := &Keeper{path: file, shed: shed, logger: slog.New(slog.NewTextHandler(&log, nil))}
	for range 3 {
		k.note(k.save(time.Now()))
	}
	require.Equal(t, 1, bytes.Count(log.Bytes(), []byte("cannot be saved")), "one line")
	Keep("", shed, k.logger).Close()
}
