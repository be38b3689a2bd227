package listen

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// recheck is the least time between two looks at the files of a certificate.
const recheck = time.Second

// A Certificate is a certificate and its key in two files, which are read again when they change. It is made by
// [NewCertificate] and safe for concurrent use. It owns no goroutine: handshakes drive it.
type Certificate struct {
	cert, key string
	logger    *slog.Logger
	now       atomic.Pointer[tls.Certificate]
	checked   atomic.Int64 // when the files were last looked at, in ns of the Unix time

	mu   sync.Mutex
	seen [2]stamp
	bad  string // the error that the log has, or ""
}

// A stamp tells two states of a file apart.
type stamp struct {
	at   time.Time
	size int64
}

// NewCertificate reads the files. The error names the file.
func NewCertificate(cert, key string, logger *slog.Logger) (*Certificate, error) {
	c := &Certificate{cert: cert, key: key, logger: logger}
	seen, err := c.look()
	if err == nil {
		err = c.load(seen)
	}
	if err != nil {
		return nil, err
	}
	c.checked.Store(time.Now().UnixNano())
	return c, nil
}

// Get returns the certificate for a handshake. While the files are not a valid pair, it is the last one that was.
func (c *Certificate) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	now, last := time.Now().UnixNano(), c.checked.Load()
	if now-last >= int64(recheck) && c.checked.CompareAndSwap(last, now) {
		c.reload()
	}
	return c.now.Load(), nil
}

// reload reads the files if they have changed.
func (c *Certificate) reload() {
	seen, err := c.look()
	c.mu.Lock()
	before, bad := c.seen, c.bad
	c.mu.Unlock()
	if err == nil && seen == before {
		return
	}
	if err == nil {
		if err = c.load(seen); err == nil {
			c.logger.Info("spillwayd: certificate read again", slog.String("cert", c.cert))
			return
		}
	}
	if err.Error() == bad { // one line for each problem
		return
	}
	c.mu.Lock()
	c.bad = err.Error()
	c.mu.Unlock()
	c.logger.Warn("spillwayd: the certificate cannot be read, the last good one stays",
		slog.String("cert", c.cert), slog.String("error", err.Error()))
}

func (c *Certificate) look() (seen [2]stamp, err error) {
	for i, path := range []string{c.cert, c.key} {
		info, err := os.Stat(path)
		if err != nil {
			return seen, err
		}
		seen[i] = stamp{info.ModTime(), info.Size()}
	}
	return seen, nil
}

func (c *Certificate) load(seen [2]stamp) error {
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		return fmt.Errorf("%s and %s: %w", c.cert, c.key, err)
	}
	c.mu.Lock()
	c.seen, c.bad = seen, ""
	c.mu.Unlock()
	c.now.Store(&pair)
	return nil
}
