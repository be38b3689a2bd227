package envoyrls

import (
	"strings"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
)

// find returns the rule of a descriptor, or nil. It appends the key of its limit to key.
func (d *domain) find(entries []*commonv3.RateLimitDescriptor_Entry, key []byte) (*rule, []byte) {
	next := d.root
	for i, e := range entries {
		n := next.find(e.GetKey(), e.GetValue())
		if n == nil {
			return nil, key
		}
		value := e.GetValue()
		if n.share {
			value = n.value + "*"
		}
		key = appendEntry(key, e.GetKey(), value)
		if i == len(entries)-1 {
			return n.rule, key
		}
		next = n.below
	}
	return nil, key
}

func (l level) find(key, value string) *node {
	b := l[key]
	if b == nil {
		return nil
	}
	if n := b.values[value]; n != nil {
		return n
	}
	for _, n := range b.wild {
		if strings.HasPrefix(value, n.value) {
			return n
		}
	}
	return b.others
}

// appendEntry appends an entry to the key of a limit. Different entries give different keys.
func appendEntry(b []byte, key, value string) []byte {
	if len(b) > 0 {
		b = append(b, '|')
	}
	b = appendPart(b, key)
	if value == "" {
		return b
	}
	return appendPart(append(b, '='), value)
}

func appendPart(b []byte, text string) []byte {
	if !strings.ContainsAny(text, `|=\`) {
		return append(b, text...)
	}
	for i := range len(text) {
		if strings.IndexByte(`|=\`, text[i]) >= 0 {
			b = append(b, '\\')
		}
		b = append(b, text[i])
	}
	return b
}
