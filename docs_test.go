package spillway_test

import (
	"cmp"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/pages"
)

const (
	maxLongShare   = 0.005 // largest share of sentences that may have more than 30 words
	shownSentences = 10
)

// plainAfterAll lists parts of the sentences with a wording that plain English avoids and that stay, each with the reason.
var plainAfterAll = map[string]string{}

// checkout returns the whole tree, or skips where the nested modules are missing.
func checkout(t *testing.T) pages.Tree {
	t.Helper()
	checkoutWorkspace(t)
	return pages.Tree{Root: "."}
}

// Readers found the prose dense and translated. Long sentences and the listed wordings are the part that can be counted.
func TestProseIsPlain(t *testing.T) {
	sentences, err := checkout(t).Sentences()
	require.NoError(t, err)
	require.Greater(t, len(sentences), 500, "the pages and package comments must be found")
	slices.SortStableFunc(sentences, func(a, b pages.Sentence) int { return cmp.Compare(b.Words(), a.Words()) })
	long := 0
	for long < len(sentences) && sentences[long].Long() {
		long++
	}
	share := float64(long) / float64(len(sentences))
	t.Logf("%d sentences, %d of them long (%.1f %%):", len(sentences), long, 100*share)
	for _, s := range sentences[:max(shownSentences, long)] {
		t.Log(s)
	}
	assert.LessOrEqual(t, share, maxLongShare, "share of the sentences that are long")
	for _, problem := range pages.NotPlain(sentences, plainAfterAll) {
		t.Error(problem)
	}
}

// Every link in the docs to a file or a heading has a target.
func TestReadmeAndPagesLinkToTargets(t *testing.T) {
	dead, err := checkout(t).DeadLinks()
	require.NoError(t, err)
	require.Empty(t, dead)
}

// Every page in docs is in the table of its index page, which is also the navigation of the site.
func TestReadmeIndexesListEveryPage(t *testing.T) {
	tree := checkout(t)
	all, err := tree.Pages()
	require.NoError(t, err)
	texts := make(map[string]string)
	for _, page := range all {
		texts[page.Name] = page.Text
	}
	for name := range texts {
		file, inDocs := strings.CutPrefix(name, "docs/")
		index := "docs/"
		if inMigrate, ok := strings.CutPrefix(file, "migrate/"); ok && inMigrate != "README.md" {
			file, index = inMigrate, "docs/migrate/"
		}
		if inDocs && file != "README.md" && !strings.Contains(texts[index+"README.md"], "]("+file+")") {
			t.Errorf("%sREADME.md has no link to %s", index, name)
		}
	}
}

// The pages in docs/reference are made from the code, and name every option and every metric.
func TestReadmeReferenceIsComplete(t *testing.T) {
	tree := checkout(t)
	options, metrics, err := tree.Undocumented()
	require.NoError(t, err)
	require.Empty(t, options, "go run ./internal/doccheck -write")
	require.Empty(t, metrics, "go run ./internal/doccheck -write")
	texts, err := tree.References()
	require.NoError(t, err)
	require.NotEmpty(t, texts)
	for name, want := range texts {
		text, err := os.ReadFile(filepath.FromSlash(name))
		require.NoError(t, err)
		require.Equal(t, want, strings.ReplaceAll(string(text), "\r\n", "\n"), "%s is old: go run ./internal/doccheck -write", name)
	}
}

// The pages of reasons and headers name every one that the code has.
func TestReadmeReferenceNamesReasonsAndHeaders(t *testing.T) {
	checkoutWorkspace(t)
	ticked := regexp.MustCompile("`[^`\n]+`")
	framing := []string{"Content-Length", "Transfer-Encoding"} // they say where a body ends
	for _, in := range []struct {
		page    string
		folders []string
		found   *regexp.Regexp
		least   int
	}{
		{
			page: "docs/reference/reasons.md", folders: []string{"internal/rejections", "cluster/internal/reason"},
			found: regexp.MustCompile(`[A-Z]\w+ += "([^"]+)"`), least: 18,
		},
		{
			page:    "docs/reference/reasons.md",
			folders: []string{"internal/overload", "shedder", "breaker", "middleware", "cmd/spillwayd/internal"},
			found:   regexp.MustCompile(`(?:\bReason: +|\breason[A-Z]\w* += |\bwhy[A-Z]\w*: )"([a-z][a-z -]+)"`), least: 17,
		},
		{
			page: "docs/reference/headers.md", folders: []string{"internal/orca", "internal/overload", "middleware", "cmd/spillwayd/internal"},
			found: regexp.MustCompile(`"((?:[A-Z][A-Za-z0-9]*|grpc|spillway|endpoint)-[A-Za-z0-9-]*[A-Za-z0-9])"`), least: 25,
		},
	} {
		text, err := os.ReadFile(filepath.FromSlash(in.page))
		require.NoError(t, err)
		named := strings.ToLower(strings.Join(ticked.FindAllString(string(text), -1), " "))
		found := map[string]bool{}
		for _, folder := range in.folders {
			for _, line := range linesOfCode(t, folder) {
				for _, m := range in.found.FindAllStringSubmatch(line, -1) {
					found[m[1]] = true
				}
			}
		}
		require.GreaterOrEqual(t, len(found), in.least, "%s: the expression finds too little in %v", in.page, in.folders)
		for name := range found {
			if !strings.Contains(named, strings.ToLower(name)) && !slices.Contains(framing, name) {
				t.Errorf("%s does not name %q", in.page, name)
			}
		}
	}
}

// linesOfCode returns the lines of the Go files in a folder and those below it, without tests and lines of comments.
func linesOfCode(t *testing.T, folder string) []string {
	t.Helper()
	var lines []string
	require.NoError(t, filepath.WalkDir(filepath.FromSlash(folder), func(name string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return err
		}
		text, err := os.ReadFile(name)
		for line := range strings.Lines(string(text)) {
			if !strings.HasPrefix(strings.TrimSpace(line), "//") {
				lines = append(lines, line)
			}
		}
		return err
	}))
	return lines
}

// The code of the migration pages is that of tests, which run it.
func TestReadmeMigrationPagesQuoteTests(t *testing.T) {
	programs, err := checkout(t).Programs()
	require.NoError(t, err)
	found := 0
	for _, p := range programs {
		if strings.HasPrefix(p.Page, "docs/migrate/") {
			found++
			assert.True(t, strings.HasPrefix(p.Source, "bench/migrate/") && p.Run, "%v stands in no test of bench/migrate", p)
		}
	}
	require.Greater(t, found, 10)
}
