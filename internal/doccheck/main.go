// Doccheck counts the pages of the documentation and what is wrong with them, and writes the pages that are made from code.
//
//	go run ./internal/doccheck -json FILE   counts, as JSON; "-" is the standard output
//	go run ./internal/doccheck -write       docs/reference, from the code
//
// A program is a block of Go in a page. It is run if it stands in a package that has tests, or that the gate runs. A long
// sentence has more than 30 words; long_sentences is their share.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spillway-go/spillway/internal/pages"
)

// Counts are the fields of the JSON.
type counts struct {
	Pages               int     `json:"pages"`
	Programs            int     `json:"programs"`
	ProgramsRun         int     `json:"programs_run"`
	DeadLinks           int     `json:"dead_links"`
	LongSentences       float64 `json:"long_sentences"`
	UndocumentedOptions int     `json:"undocumented_options"`
	UndocumentedMetrics int     `json:"undocumented_metrics"`
}

func main() {
	file := flag.String("json", "-", "write the counts to this `file`")
	write := flag.Bool("write", false, "write the pages that are made from code instead")
	root := flag.String("root", ".", "the `folder` of README.md")
	flag.Parse()
	tree := pages.Tree{Root: *root}
	do := writeCounts
	if *write {
		do = func(tree pages.Tree, _ string) error { return writeReferences(tree) }
	}
	if err := do(tree, *file); err != nil {
		fmt.Fprintln(os.Stderr, "doccheck:", err)
		os.Exit(1)
	}
}

func writeReferences(tree pages.Tree) error {
	texts, err := tree.References()
	if err != nil {
		return err
	}
	for name, text := range texts {
		file := filepath.Join(tree.Root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

func writeCounts(tree pages.Tree, file string) error {
	c, err := count(tree)
	if err != nil {
		return err
	}
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	text = append(text, '\n')
	if file == "-" {
		_, err = os.Stdout.Write(text)
		return err
	}
	return os.WriteFile(file, text, 0o600)
}

func count(tree pages.Tree) (counts, error) {
	all, err := tree.Pages()
	if err != nil {
		return counts{}, err
	}
	c := counts{Pages: len(all)}
	programs, err := tree.Programs()
	if err != nil {
		return counts{}, err
	}
	for _, p := range programs {
		c.Programs++
		if p.Run {
			c.ProgramsRun++
		}
	}
	dead, err := tree.DeadLinks()
	if err != nil {
		return counts{}, err
	}
	c.DeadLinks = len(dead)
	sentences, err := tree.Sentences()
	if err != nil {
		return counts{}, err
	}
	for _, s := range sentences {
		if s.Long() {
			c.LongSentences += 1 / float64(len(sentences))
		}
	}
	options, metrics, err := tree.Undocumented()
	c.UndocumentedOptions, c.UndocumentedMetrics = len(options), len(metrics)
	return c, err
}
