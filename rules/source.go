package rules

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// settle is how long a file must stay the same before a changed content counts: longer than a pause of a writer.
const settle = 100 * time.Millisecond

// File returns a Source that reads a file. It compares contents, so it follows a rename, a change of a symbolic link, as in a
// mounted ConfigMap, and a file that is written in place. After a change it reads until two reads, 100 ms apart, are equal, so
// [Options.Timeout] must be longer.
func File(path string) Source {
	var mu sync.Mutex
	var last []byte
	return func(ctx context.Context) ([]byte, error) {
		mu.Lock()
		defer mu.Unlock()
		data, err := readFile(path)
		for err == nil && (last == nil || !bytes.Equal(data, last)) {
			last = data
			select {
			case <-time.After(settle):
			case <-ctx.Done():
				last = nil
				return nil, fmt.Errorf("rules: %s changes all the time: %w", path, ctx.Err())
			}
			data, err = readFile(path)
		}
		if err != nil {
			last = nil
			return nil, err
		}
		return data, nil
	}
}

func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() { // a pipe would block
		return nil, fmt.Errorf("rules: %s must be a regular file, got %v", path, info.Mode())
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readAll(f)
}

// maxTag is the longest ETag that is sent back, in bytes. Servers refuse requests with long headers.
const maxTag = 1000

// readAll reads at most one byte more than a document may have, so that the Set refuses what is too long.
func readAll(r io.Reader) ([]byte, error) { return io.ReadAll(io.LimitReader(r, maxDocument+1)) }

// WriteFile returns a function that puts a document into a file, by a rename, so that readers see the old document or the new one.
// It fails if the path is a symbolic link, as in a mounted ConfigMap: change the document where it comes from.
func WriteFile(path string) func(ctx context.Context, document []byte) error {
	return func(_ context.Context, document []byte) error {
		mode := fs.FileMode(0o644)
		switch info, err := os.Lstat(path); {
		case err == nil && !info.Mode().IsRegular():
			return fmt.Errorf("rules: %s must be a regular file to write to, got %v", path, info.Mode())
		case err == nil:
			mode = info.Mode().Perm()
		}
		f, err := os.CreateTemp(filepath.Dir(path), ".rules-*")
		if err != nil {
			return err
		}
		_, err = f.Write(document)
		err = cmp.Or(err, f.Chmod(mode), f.Sync(), f.Close())
		if err == nil {
			err = os.Rename(f.Name(), path)
		}
		if err != nil {
			_ = os.Remove(f.Name())
		}
		return err
	}
}

// HTTP returns a Source that gets a document from a server. It sends the ETag of the last answer, so that an unchanged document
// is not sent again. Any status but 200 and 304 is an error. If client is nil, it is [http.DefaultClient]; give one with a
// Transport of your own for credentials. For a fleet, set [Options.Every] to ten seconds or so.
func HTTP(url string, client *http.Client) Source {
	if client == nil {
		client = http.DefaultClient
	}
	var mu sync.Mutex
	var tag string
	var last []byte
	return func(ctx context.Context) ([]byte, error) {
		mu.Lock()
		defer mu.Unlock()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return nil, err
		}
		if tag != "" {
			req.Header.Set("If-None-Match", tag)
		}
		resp, err := client.Do(req)
		if err != nil {
			return nil, err
		}
		defer resp.Body.Close()
		switch {
		case resp.StatusCode == http.StatusNotModified && tag != "":
			return last, nil
		case resp.StatusCode != http.StatusOK:
			return nil, fmt.Errorf("rules: %s answered %s", req.URL.Redacted(), resp.Status)
		}
		data, err := readAll(resp.Body)
		if err != nil {
			return nil, err
		}
		if tag, last = resp.Header.Get("ETag"), data; len(tag) > maxTag {
			tag = ""
		}
		return data, nil
	}
}
