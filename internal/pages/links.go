package pages

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

var (
	heading = regexp.MustCompile("(?m)^#+ (.+)$")
	target  = regexp.MustCompile(`\]\(([^)#\s]*)(?:#([^)\s]+))?\)`)
	noSlug  = regexp.MustCompile(`[^\p{L}\p{N}\s_-]`)
)

// DeadLinks returns a line for each link of a page to a file or a heading of the tree that does not exist. It does not follow
// links to other sites.
func (t Tree) DeadLinks() ([]string, error) {
	all, err := t.Pages()
	if err != nil {
		return nil, err
	}
	var dead []string
	for _, page := range all {
		text := fenced.ReplaceAllString(page.Text, "\n")
		for _, l := range target.FindAllStringSubmatch(text, -1) {
			if !strings.Contains(l[1], "://") && !t.exists(page, l[1], l[2]) {
				dead = append(dead, fmt.Sprintf("%s: %s has no target", page.Name, l[0][1:]))
			}
		}
	}
	return dead, nil
}

func (t Tree) exists(page Page, file, anchor string) bool {
	text := page.Text
	if file != "" {
		name := path.Join(path.Dir(page.Name), file)
		info, err := os.Stat(filepath.Join(t.Root, filepath.FromSlash(name)))
		if err != nil || info.IsDir() {
			return err == nil && anchor == ""
		}
		if text, err = t.read(name); err != nil {
			return false
		}
	}
	return anchor == "" || anchors(text)[anchor]
}

// anchors returns the anchors of the headings of a page, as GitHub makes them.
func anchors(text string) map[string]bool {
	all := map[string]bool{}
	for _, h := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(text, "\n"), -1) {
		all[strings.ReplaceAll(noSlug.ReplaceAllString(strings.ToLower(h[1]), ""), " ", "-")] = true
	}
	return all
}
