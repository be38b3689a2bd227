package main

import (
	"bytes"
	"fmt"
)

// replace puts section, which ends with a newline, between the marks of the given name.
func replace(page []byte, name, section string) ([]byte, error) {
	from, to := fmt.Appendf(nil, "<!-- %s -->\n", name), fmt.Appendf(nil, "<!-- end of %s -->", name)
	before, rest, ok := bytes.Cut(page, from)
	if !ok {
		return nil, fmt.Errorf("the page has no mark %q", bytes.TrimSpace(from))
	}
	_, after, ok := bytes.Cut(rest, to)
	if !ok {
		return nil, fmt.Errorf("the page has no mark %q behind %q", to, bytes.TrimSpace(from))
	}
	return fmt.Appendf(nil, "%s%s\n%s\n%s%s", before, from, section, to, after), nil
}
