package spillway_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	heading = regexp.MustCompile("(?m)^#+ (.+)$")
	target  = regexp.MustCompile(`\]\(([^)#\s]*)(?:#([^)\s]+))?\)`)
	noSlug  = regexp.MustCompile(`[^\p{L}\p{N}\s_-]`)
)

// anchors returns the anchors of the headings of a page, as GitHub makes them.
func anchors(page string) map[string]bool {
	all := map[string]bool{}
	for _, h := range heading.FindAllStringSubmatch(page, -1) {
		all[strings.ReplaceAll(noSlug.ReplaceAllString(strings.ToLower(h[1]), ""), " ", "-")] = true
	}
	return all
}

// Every link in the docs to a file or a heading has a target.
func TestLinksHaveTargets(t *testing.T) {
	pages, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	for _, page := range append(pages, "README.md", "CHANGELOG.md", "SECURITY.md", "CONTRIBUTING.md") {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, l := range target.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(l[1], "://") {
				continue
			}
			file, there := filepath.Join(filepath.Dir(page), l[1]), text
			if l[1] != "" {
				_, err := os.Stat(file)
				require.NoError(t, err, "%s: (%s)", page, l[1])
			}
			if l[2] == "" {
				continue
			}
			if l[1] != "" {
				there, err = os.ReadFile(file)
				require.NoError(t, err, "%s: (%s)", page, l[1])
			}
			require.True(t, anchors(string(there))[l[2]], "%s: (%s#%s)", page, l[1], l[2])
		}
	}
}
