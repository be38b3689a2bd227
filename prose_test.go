package spillway_test

import (
	"cmp"
	"fmt"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
)

const (
	longSentence   = 30   // words; style guides for technical English advise 20 to 25
	maxLongShare   = 0.02 // largest share of sentences that may be longer
	shownSentences = 10
)

// notPlain matches wordings that plain English avoids: they name an action or a person by a clause instead of a noun.
var notPlain = regexp.MustCompile(`(?i)` + strings.Join([]string{
	`\b(?:is|are|was|were|been) told\b`, `\bwho(?:so)?ever\b`, `\bwhomever\b`, `\bwho (?:came|comes|waits?)\b`,
	`\bthose (?:inside|who|that|from)\b`, `\bone who\b`, `^(?:who|what)\b[^?:]*[.;]`,
	`\bwhat (?:is|are|was|were|has|comes|came|goes) \w+ (?:is|are|was|were|goes|comes|counts|stays)\b`,
	`\bnobody(?:'s| (?:knows|waits|has|hears|sees|is))\b`, `\bsomebody\b`, `\banybody\b`, `\bfor nothing\b`, `^of which\b`, `[,:] of which\b`, `\bby the way of\b`,
	`\bturned away\b`, `\bas good as new\b`, `\bis no error\b`, `\bhears? of\b`, `\bcomes to nothing\b`,
	`\bout of harm\b`, `\bthe way of a\b`, `\bis none\b`, `\bas left\b`,
}, "|"))

// plainAfterAll lists parts of the sentences that notPlain matches and that stay, each with the reason.
var plainAfterAll = map[string]string{}

// A sentence of a page or of a package comment.
type sentence struct {
	where, text string
}

func (s sentence) String() string { return fmt.Sprintf("%s: %s", s.where, s.text) }

// words counts the parts of a sentence that have a letter or a digit.
func (s sentence) words() int {
	n := 0
	for field := range strings.FieldsSeq(s.text) {
		if strings.IndexFunc(field, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }) >= 0 {
			n++
		}
	}
	return n
}

// Readers found the prose dense and translated. Long sentences and the wordings of notPlain are the part that can be counted.
func TestProseIsPlain(t *testing.T) {
	checkoutWorkspace(t)
	sentences := append(sentencesOfPages(t), sentencesOfPackages(t)...)
	require.Greater(t, len(sentences), 500, "the pages and package comments must be found")
	slices.SortStableFunc(sentences, func(a, b sentence) int { return cmp.Compare(b.words(), a.words()) })
	long := 0
	for long < len(sentences) && sentences[long].words() > longSentence {
		long++
	}
	share := float64(long) / float64(len(sentences))
	t.Logf("%d sentences, %d above %d words (%.1f %%), the longest:", len(sentences), long, longSentence, 100*share)
	for _, s := range sentences[:shownSentences] {
		t.Logf("%d words, %v", s.words(), s)
	}
	if share > maxLongShare {
		t.Errorf("%.1f %% of the sentences have more than %d words, want at most %.0f %%", 100*share, longSentence, 100*maxLongShare)
	}
	for _, problem := range notPlainIn(sentences, plainAfterAll) {
		t.Error(problem)
	}
}

// notPlainIn returns a line for each sentence that notPlain matches and that is no exception, and for each unused exception.
func notPlainIn(sentences []sentence, exceptions map[string]string) []string {
	var problems []string
	used := make(map[string]bool)
	for _, s := range sentences {
		found := notPlain.FindString(s.text)
		if found == "" {
			continue
		}
		exempt := false
		for part := range exceptions {
			if strings.Contains(s.text, part) {
				exempt, used[part] = true, true
			}
		}
		if !exempt {
			problems = append(problems, fmt.Sprintf("%q in %v", found, s))
		}
	}
	for part := range exceptions {
		if !used[part] {
			problems = append(problems, fmt.Sprintf("no sentence needs the exception %q", part))
		}
	}
	return problems
}

func TestProseCheckerFindsBadSentences(t *testing.T) {
	const page = "# What is skipped is a heading\n\n<!-- whoever -->\n| whoever | reads |\n\n" +
		"Callers that wait [are\ntold](https://whoever.example) `whoever` `a b`. lower, e.g. here:\n\n" +
		"```\nwhoever\n```\n\n    whoever\n\n- What was refused is lost.\n- Why not?\n  Two lines (of one).\n"
	sentences := sentencesOf("page", markdownBlocks(page))
	var texts []string
	for _, s := range sentences {
		texts = append(texts, s.text)
	}
	require.Equal(t, []string{
		"Callers that wait are told CODE CODE.", "lower, e.g here:", "What was refused is lost.", "Why not?", "Two lines (of one).",
	}, texts)
	require.Equal(t, 7, sentences[0].words())
	require.Len(t, notPlainIn(sentences, nil), 2)
	require.Empty(t, notPlainIn(sentences, map[string]string{"are told": "a reason", "refused is lost": "a reason"}))
	require.Len(t, notPlainIn(nil, map[string]string{"are told": "a reason"}), 1)
}

func sentencesOfPages(t *testing.T) []sentence {
	t.Helper()
	pages, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	var found []sentence
	for _, page := range append(pages, "README.md", "SECURITY.md", "CONTRIBUTING.md") {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		found = append(found, sentencesOf(filepath.ToSlash(page), markdownBlocks(string(text)))...)
	}
	return found
}

// sentencesOfPackages returns the sentences of all package comments of all modules, without their code.
func sentencesOfPackages(t *testing.T) []sentence {
	t.Helper()
	var found []sentence
	for _, file := range goFiles(t) {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.PackageClauseOnly|parser.ParseComments)
		require.NoError(t, err)
		if f.Doc == nil || strings.HasSuffix(file, "_test.go") {
			continue
		}
		var blocks []string
		for _, b := range new(comment.Parser).Parse(f.Doc.Text()).Content {
			switch b := b.(type) {
			case *comment.Paragraph:
				blocks = append(blocks, plainText(b.Text))
			case *comment.List:
				for _, item := range b.Items {
					for _, c := range item.Content {
						if p, ok := c.(*comment.Paragraph); ok {
							blocks = append(blocks, plainText(p.Text))
						}
					}
				}
			}
		}
		found = append(found, sentencesOf(path.Dir(file), blocks)...)
	}
	return found
}

func plainText(parts []comment.Text) string {
	var b strings.Builder
	for _, part := range parts {
		switch part := part.(type) {
		case comment.Plain:
			b.WriteString(string(part))
		case comment.Italic:
			b.WriteString(string(part))
		case *comment.Link:
			b.WriteString(plainText(part.Text))
		case *comment.DocLink:
			b.WriteString(plainText(part.Text))
		}
	}
	return b.String()
}

var (
	fenced   = regexp.MustCompile("(?ms)^\\s*```.*?^\\s*```\\s*?$")
	remark   = regexp.MustCompile(`(?s)<!--.*?-->`)
	link     = regexp.MustCompile(`!?\[([^\]]*)\]\([^)]*\)`)
	code     = regexp.MustCompile("`[^`]*`")
	listItem = regexp.MustCompile(`^\s*(?:[-*]|\d+\.)\s+`)
	// abbreviation matches a period that ends no sentence.
	abbreviation = regexp.MustCompile(`\b(e\.g|i\.e|cf|vs)\.`)
	sentenceEnd  = regexp.MustCompile(`([.!?]["”)*]*) +`)
)

// markdownBlocks returns the paragraphs and list items of a page, each on one line, without code, tables and headings.
func markdownBlocks(text string) []string {
	text = strings.ReplaceAll(text, "\r\n", "\n")
	text = remark.ReplaceAllString(fenced.ReplaceAllString(text, "\n"), "\n")
	var blocks []string
	open := false // whether the last block goes on
	for line := range strings.SplitSeq(text, "\n") {
		trimmed := strings.TrimSpace(line)
		item := listItem.FindString(line)
		switch {
		case trimmed == "", trimmed[0] == '#', trimmed[0] == '|':
			open = false
		case item != "":
			blocks, open = append(blocks, line[len(item):]), true
		case open:
			blocks[len(blocks)-1] += " " + trimmed
		case !strings.HasPrefix(line, "    "): // or it is code
			blocks, open = append(blocks, trimmed), true
		}
	}
	return blocks
}

func sentencesOf(where string, blocks []string) []sentence {
	var found []sentence
	for _, block := range blocks {
		block = link.ReplaceAllString(code.ReplaceAllString(block, "CODE"), "$1")
		block = abbreviation.ReplaceAllString(strings.Join(strings.Fields(block), " "), "$1")
		block = sentenceEnd.ReplaceAllString(block, "$1\n")
		for text := range strings.SplitSeq(block, "\n") {
			if s := (sentence{where, text}); s.words() > 0 {
				found = append(found, s)
			}
		}
	}
	return found
}
