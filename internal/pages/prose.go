package pages

import (
	"fmt"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"unicode"
)

const longSentence = 30 // words

// notPlain matches wordings that plain English avoids: they name an action or a person by a clause instead of a noun.
var notPlain = regexp.MustCompile(`(?i)` + strings.Join([]string{
	`\b(?:is|are|was|were|been) told\b`, `\bwho(?:so)?ever\b`, `\bwhomever\b`, `\bwho (?:came|comes|waits?)\b`,
	`\bthose (?:inside|who|that|from)\b`, `\bone who\b`, `^(?:who|what)\b[^?:]*[.;]`,
	`\bwhat (?:is|are|was|were|has|comes|came|goes) \w+ (?:is|are|was|were|goes|comes|counts|stays)\b`,
	`\bnobody(?:'s| (?:knows|waits|has|hears|sees|is))\b`, `\bsomebody\b`, `\banybody\b`,
	`\bfor nothing\b`, `^of which\b`, `[,:] of which\b`, `\bby the way of\b`,
	`\bturned away\b`, `\bas good as new\b`, `\bis no error\b`, `\bhears? of\b`, `\bcomes to nothing\b`,
	`\bout of harm\b`, `\bthe way of a\b`, `\bis none\b`, `\bas left\b`,
}, "|"))

// A Sentence is one of a page or of a package comment.
type Sentence struct {
	Where string // page, or folder of the package
	Text  string
}

// String returns the length of the sentence, where it stands, and its text.
func (s Sentence) String() string { return fmt.Sprintf("%d words, %s: %s", s.Words(), s.Where, s.Text) }

// Words counts the parts of a sentence that have a letter or a digit.
func (s Sentence) Words() int {
	n := 0
	for field := range strings.FieldsSeq(s.Text) {
		if strings.IndexFunc(field, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }) >= 0 {
			n++
		}
	}
	return n
}

// Long reports whether the sentence has more than 30 words. Style guides for technical English advise 20 to 25.
func (s Sentence) Long() bool { return s.Words() > longSentence }

// Sentences returns the sentences of all pages but the change log, and of all package comments of all modules, without code,
// tables and headings.
func (t Tree) Sentences() ([]Sentence, error) {
	all, err := t.Pages()
	if err != nil {
		return nil, err
	}
	var found []Sentence
	for _, page := range all {
		if page.Name != changelog {
			found = append(found, sentencesOf(page.Name, markdownBlocks(page.Text))...)
		}
	}
	comments, err := t.sentencesOfPackages()
	return append(found, comments...), err
}

// NotPlain returns a line for each sentence with a wording that plain English avoids, and for each exception that no sentence
// needs. Exceptions are parts of sentences that stay, each with its reason.
func NotPlain(sentences []Sentence, exceptions map[string]string) []string {
	var problems []string
	used := make(map[string]bool)
	for _, s := range sentences {
		found := notPlain.FindString(s.Text)
		if found == "" {
			continue
		}
		exempt := false
		for part := range exceptions {
			if strings.Contains(s.Text, part) {
				exempt, used[part] = true, true
			}
		}
		if !exempt {
			problems = append(problems, fmt.Sprintf("%q in %s: %s", found, s.Where, s.Text))
		}
	}
	for part := range exceptions {
		if !used[part] {
			problems = append(problems, fmt.Sprintf("no sentence needs the exception %q", part))
		}
	}
	return problems
}

func (t Tree) sentencesOfPackages() ([]Sentence, error) {
	files, err := t.files(".go")
	if err != nil {
		return nil, err
	}
	var found []Sentence
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(t.Root, file), nil, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			return nil, err
		}
		if f.Doc != nil {
			found = append(found, sentencesOf(path.Dir(file), commentBlocks(f.Doc.Text()))...)
		}
	}
	return found, nil
}

// commentBlocks returns the paragraphs and list items of a doc comment, without its code.
func commentBlocks(text string) []string {
	var blocks []string
	for _, b := range new(comment.Parser).Parse(text).Content {
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
	return blocks
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

func sentencesOf(where string, blocks []string) []Sentence {
	var found []Sentence
	for _, block := range blocks {
		block = link.ReplaceAllString(code.ReplaceAllString(block, "CODE"), "$1")
		block = abbreviation.ReplaceAllString(strings.Join(strings.Fields(block), " "), "$1")
		block = sentenceEnd.ReplaceAllString(block, "$1\n")
		for text := range strings.SplitSeq(block, "\n") {
			if s := (Sentence{where, text}); s.Words() > 0 {
				found = append(found, s)
			}
		}
	}
	return found
}
