// Package name checks the names that users give to policies.
package name

import "fmt"

// maxLen is the length in bytes of the longest name: enough for "payments-eu-west-1/checkout-db", and short enough for a label.
const maxLen = 64

// Or returns name, or byDefault if name is empty. The error says that name is not fit for a metric label or a header field; owner
// begins it, such as "breaker" or "limiter: Bucket".
func Or(owner, name, byDefault string) (string, error) {
	if len(name) > maxLen {
		return "", fmt.Errorf("%s: Name must be at most %d bytes, got %d (%q...)", owner, maxLen, len(name), name[:16])
	}
	for _, c := range []byte(name) {
		if c < ' ' || c > '~' {
			return "", fmt.Errorf("%s: Name must be printable ASCII, got %q", owner, name)
		}
	}
	if name == "" {
		return byDefault, nil
	}
	return name, nil
}

// Keep returns the name of a policy that runs as old: given must be empty or the same. The error says that it is not.
func Keep(owner, old, given string) (string, error) {
	if given != "" && given != old {
		return "", fmt.Errorf("%s: Tune: Name cannot change from %q, got %q", owner, old, given)
	}
	return old, nil
}
