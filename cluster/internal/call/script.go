package call

import (
	"crypto/sha1" //nolint:gosec // EVALSHA names a script by its SHA-1; nothing is secret
	_ "embed"
	"encoding/hex"
	"strings"
)

// Clock is the beginning of every script that needs the time: it defines now, in µs.
//
//go:embed clock.lua
var Clock string

// A Script is Lua that Redis runs as one step. It is sent once to each server and called by its SHA-1 from then on.
type Script struct {
	Source string
	hash   string
}

// NewScript joins parts to one script.
func NewScript(parts ...string) *Script {
	source := strings.Join(parts, "\n")
	sum := sha1.Sum([]byte(source)) //nolint:gosec // as above
	return &Script{Source: source, hash: hex.EncodeToString(sum[:])}
}

// Command returns the arguments of the command that runs the script by its hash.
func (s *Script) Command(keys []string, args []any) []any {
	cmd := make([]any, 3, 3+len(keys)+len(args))
	cmd[0], cmd[1], cmd[2] = "evalsha", s.hash, len(keys)
	for _, k := range keys {
		cmd = append(cmd, k)
	}
	return append(cmd, args...)
}

// withSource turns what command returned into the command that sends the script and runs it.
func (s *Script) withSource(cmd []any) []any {
	cmd[0], cmd[1] = "eval", s.Source
	return cmd
}
