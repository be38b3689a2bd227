package cluster

import (
	"crypto/sha1" //nolint:gosec // Redis names scripts by it
	_ "embed"
	"encoding/hex"
	"strings"
)

// clockLua is the beginning of every script that needs the time: it defines now, in µs.
//
//go:embed scripts/clock.lua
var clockLua string

// A script is Lua that Redis runs as one step. It is sent once to each server and called by its SHA-1 from then on.
type script struct {
	source string
	hash   string
}

// newScript joins parts to one script.
func newScript(parts ...string) *script {
	source := strings.Join(parts, "\n")
	sum := sha1.Sum([]byte(source)) //nolint:gosec // as above
	return &script{source: source, hash: hex.EncodeToString(sum[:])}
}

// command returns the arguments of the command that runs the script by its hash.
func (s *script) command(keys []string, args []any) []any {
	cmd := make([]any, 3, 3+len(keys)+len(args))
	cmd[0], cmd[1], cmd[2] = "evalsha", s.hash, len(keys)
	for _, k := range keys {
		cmd = append(cmd, k)
	}
	return append(cmd, args...)
}

// withSource turns what command returned into the command that sends the script and runs it.
func (s *script) withSource(cmd []any) []any {
	cmd[0], cmd[1] = "eval", s.source
	return cmd
}
