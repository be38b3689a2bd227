package spillway_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// An action by tag is whatever its owner makes of the tag later. So each is named by the hash of a commit, with its version beside it.
func TestActionsArePinned(t *testing.T) {
	files, err := filepath.Glob(".github/workflows/*")
	require.NoError(t, err)
	if len(files) == 0 {
		t.Skip("the workflows are not here: this is a downloaded module, not a checkout")
	}
	found := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		uses, loose := actions(string(text))
		found += uses
		require.Empty(t, loose, "%s: write owner/name@HASH # vX.Y.Z, with the 40 digits of the commit", file)
	}
	require.Positive(t, found)
}

func TestActionsFindsLooseOnes(t *testing.T) {
	const hash = "0123456789abcdef0123456789abcdef01234567"
	for line, pinned := range map[string]bool{
		"- uses: a/b@" + hash + " # v1.2.3":         true,
		"uses: a/b/c@" + hash + " # v1.2.3":         true,
		"- uses: ./.github/actions/own":             true,
		"- uses: a/b@v1":                            false,
		"- uses: a/b@main # v1.2.3":                 false,
		"- uses: a/b@" + hash[1:] + " # v1.2.3":     false,
		"- uses: a/b@" + hash + "0 # v1.2.3":        false,
		"- uses: a/b@" + hash:                       false,
		"- {uses: a/b@v1}":                          false,
		`- "uses": a/b@v1`:                          false,
		"- uses: docker://a/b:1":                    false,
		"- uses : a/b@v1":                           false,
		"# an action that a workflow uses: see a/b": true,
	} {
		_, loose := actions("jobs:\n    " + line + "\n")
		require.Equal(t, pinned, len(loose) == 0, line)
	}
}

var (
	usesAction   = regexp.MustCompile(`["']?\buses["']?\s*:`)
	pinnedAction = regexp.MustCompile(`^(- )?uses: (\./\S+|[\w.-]+(/[\w.-]+)+@[0-9a-f]{40} # v\d+\.\d+\.\d+)$`)
)

// actions returns how many lines of a workflow use an action, and those of them that do not pin it.
func actions(workflow string) (uses int, loose []string) {
	for line := range strings.Lines(workflow) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "#") || !usesAction.MatchString(line) {
			continue
		}
		uses++
		if !pinnedAction.MatchString(line) {
			loose = append(loose, line)
		}
	}
	return uses, loose
}
