package cluster

import (
	"crypto/sha256"
	"encoding/hex"
)

// maxKey is the length of the longest key that is kept as it is, in bytes. Longer ones are named by their SHA-256, so that no client
// fills the memory of Redis, or of this process, by sending long keys.
const maxKey = 128

// shortKey returns what a key is kept by.
func shortKey(key string) string {
	if len(key) <= maxKey {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return "sha256-" + hex.EncodeToString(sum[:])
}
