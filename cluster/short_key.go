package cluster

import (
	"crypto/sha256"
	"encoding/hex"
)

// maxKey is the length, in bytes, of the longest key that is kept in full. Longer keys are replaced by their SHA-256,
// so that long keys cannot fill the memory of Redis or of this process.
const maxKey = 128

// shortKey returns the name under which a key is kept.
func shortKey(key string) string {
	if len(key) <= maxKey {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return "sha256-" + hex.EncodeToString(sum[:])
}
