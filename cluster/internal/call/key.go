package call

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// maxKey is the length, in bytes, of the longest key that is kept in full. Longer keys are replaced by their SHA-256,
// so that long keys cannot fill the memory of Redis or of this process.
const maxKey = 128

// ShortKey returns the name under which a key is kept.
func ShortKey(key string) string {
	if len(key) <= maxKey {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return "sha256-" + hex.EncodeToString(sum[:])
}

// ValidateName checks a name that becomes part of keys and of metrics.
func ValidateName(field, name, without string) error {
	for _, c := range []byte(name) {
		if c < ' ' || c > '~' || strings.IndexByte(without, c) >= 0 {
			return fmt.Errorf("%s must be printable ASCII without any of %s, got %q", field, without, name)
		}
	}
	return nil
}
