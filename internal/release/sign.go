package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Who signs a release, for what, and where the public keys are.
const (
	identity  = "spillway-release"
	namespace = "spillway"
	publicKey = "docs/release-signers"
)

// checksums writes SHA256SUMS for the files in a folder, as sha256sum does, and returns its place.
func checksums(folder string) (string, error) {
	entries, err := os.ReadDir(folder) // sorted
	if err != nil {
		return "", err
	}
	var lines strings.Builder
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(folder, e.Name()))
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&lines, "%x  %s\n", sha256.Sum256(text), e.Name())
	}
	sums := filepath.Join(folder, "SHA256SUMS")
	return sums, os.WriteFile(sums, []byte(lines.String()), 0o644) //nolint:gosec // it is public
}

// signWith signs a file with a key, and returns the file with the public keys that the signature must be valid by. Without a key, it makes one,
// which is thrown away.
func (r *rehearsal) signWith(key, file string) (signers string, err error) {
	signers = r.tree.at(publicKey)
	if key == "" {
		key, signers = filepath.Join(r.dir, "key"), filepath.Join(r.dir, "signers")
		if _, err := program(r.dir, nil, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "thrown away", "-f", key); err != nil {
			return "", err
		}
		public, err := os.ReadFile(key + ".pub")
		if err != nil {
			return "", err
		}
		line := fmt.Sprintf("%s namespaces=%q %s", identity, namespace, public)
		if err := os.WriteFile(signers, []byte(line), 0o600); err != nil {
			return "", err
		}
	}
	_, err = program(".", nil, "ssh-keygen", "-q", "-Y", "sign", "-f", key, "-n", namespace, file)
	return signers, err
}

// verify checks the signature beside a file, as users do.
func verify(file, signers string) error {
	text, err := os.Open(file)
	if err != nil {
		return err
	}
	defer text.Close()
	_, err = execute(".", nil, text, "ssh-keygen", "-q", "-Y", "verify", "-f", signers, "-I", identity, "-n", namespace, "-s", file+".sig")
	return err
}
