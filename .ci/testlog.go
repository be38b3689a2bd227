// Testlog reads what go test -json wrote.
//
//	testlog failures FILE...              prints what failed tests, failed builds and non-JSON lines said
//	testlog skips [-allow REGEXP] FILE... prints the tests that skipped and passed in no file; exits 1 if there is one whose
//	                                      "package test: what it said" does not match
//	testlog summary FILE...               prints the go command's own line of each package, the first one and those of failures
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

// An event is one line of go test -json, as cmd/test2json documents it.
type event struct {
	Action, Package, Test, Output, ImportPath string
}

func main() {
	if len(os.Args) < 3 {
		fatal("usage: testlog failures|skips|summary FILE...")
	}
	verb, files := os.Args[1], os.Args[2:]
	allow := regexp.MustCompile(`^$`)
	if files[0] == "-allow" && len(files) > 2 {
		allow, files = regexp.MustCompile(files[1]), files[2:]
	}
	var events []event
	for _, f := range files {
		events = append(events, read(f)...)
	}
	switch verb {
	case "failures":
		failures(events)
	case "skips":
		skips(events, allow)
	case "summary":
		summary(events)
	default:
		fatal("testlog: unknown verb " + verb)
	}
}

// read returns the events of a file; a line that is not an event becomes one with Action "text".
func read(name string) []event {
	f, err := os.Open(name)
	if err != nil {
		fatal(err.Error())
	}
	defer f.Close()
	var events []event
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil || e.Action == "" {
			e = event{Action: "text", Output: lines.Text() + "\n"}
		}
		events = append(events, e)
	}
	if err := lines.Err(); err != nil {
		fatal(name + ": " + err.Error())
	}
	return events
}

// failures prints the output of every test that neither passed nor skipped in a package that failed, which includes tests
// that were running when the process died, and of the package itself.
func failures(events []event) {
	failed, ended := map[string]bool{}, map[string]bool{}
	for _, e := range events {
		switch {
		case e.Action == "fail" && e.Test == "":
			failed[e.Package] = true
		case e.Action == "pass" || e.Action == "skip":
			ended[e.Package+" "+e.Test] = true
		}
	}
	for _, e := range events {
		own := e.Action == "output" && failed[e.Package] && !ended[e.Package+" "+e.Test]
		if own || e.Action == "build-output" || e.Action == "text" && !strings.HasPrefix(e.Output, "go: downloading ") {
			fmt.Print(e.Output)
		}
	}
}

// skips prints the tests that skipped and passed nowhere, each with what it said.
func skips(events []event, allow *regexp.Regexp) {
	said, skipped, passed := map[string]string{}, map[string]bool{}, map[string]bool{}
	for _, e := range events {
		if e.Test == "" {
			continue
		}
		name := e.Package + " " + e.Test
		switch e.Action {
		case "output":
			if !strings.HasPrefix(e.Output, "=== ") {
				said[name] += e.Output
			}
		case "skip":
			skipped[name] = true
		case "pass":
			passed[name] = true
		}
	}
	bad := false
	for _, name := range slices.Sorted(maps.Keys(skipped)) {
		if passed[name] {
			continue
		}
		if allow.MatchString(name + ": " + strings.Join(strings.Fields(said[name]), " ")) {
			continue
		}
		bad = true
		fmt.Printf("skipped: %s\n%s", name, said[name])
	}
	if bad {
		os.Exit(1)
	}
}

// summary prints the lines that go test without -json ends each package with.
func summary(events []event) {
	shown := map[string]bool{}
	for _, e := range events {
		ok := strings.HasPrefix(e.Output, "ok  \t") && !shown[e.Package]
		if e.Test == "" && (ok || strings.HasPrefix(e.Output, "FAIL\t")) {
			shown[e.Package] = true
			fmt.Print(e.Output)
		}
	}
}

func fatal(text string) {
	fmt.Fprintln(os.Stderr, text)
	os.Exit(2)
}
