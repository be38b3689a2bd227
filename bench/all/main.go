// All makes the tables and pictures of docs/benchmarks.md. Run it from the top folder of the checkout:
//
//	go run ./bench/all -out docs -figures figures
//	go run ./bench/all -out docs -figures quick -quick
//
// It keeps its measurements in the folder of -figures and does not repeat existing ones. So you can measure the
// parts one by one, and repeat a part by removing its file. It replaces the text between the marks <!-- NAME --> and
// <!-- end of NAME --> of docs/benchmarks.md, and writes one picture for each work.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "all:", err)
		os.Exit(1)
	}
}

// settings are the flags.
type settings struct {
	out, figures string
	quick        bool
	only         []string
}

func parse(args []string, out io.Writer) (*settings, error) {
	s := &settings{}
	flags := flag.NewFlagSet("all", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.StringVar(&s.out, "out", "docs", "folder of benchmarks.md and of the pictures")
	flags.StringVar(&s.figures, "figures", "", "folder to keep what is measured in (default: one that is removed at the end)")
	flags.BoolVar(&s.quick, "quick", false, "measure for moments only: to see that all works, not for figures")
	only := flags.String("only", strings.Join(names(), ","), "parts to make")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	for name := range strings.SplitSeq(*only, ",") {
		if !slices.Contains(names(), name) {
			return nil, fmt.Errorf("-only: no part %q; there are %s", name, strings.Join(names(), ", "))
		}
		s.only = append(s.only, name)
	}
	return s, nil
}

func run(ctx context.Context, args []string, out io.Writer) error {
	s, err := parse(args, out)
	if err != nil {
		return err
	}
	if s.figures == "" {
		if s.figures, err = os.MkdirTemp("", "spillway-figures-"); err != nil {
			return err
		}
		defer os.RemoveAll(s.figures)
	}
	if err := os.MkdirAll(s.figures, 0o750); err != nil {
		return err
	}
	page := filepath.Join(s.out, "benchmarks.md")
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	for _, p := range parts() {
		if !slices.Contains(s.only, p.name) {
			continue
		}
		if err := s.measure(ctx, &p, out); err != nil {
			return err
		}
		section, err := p.render(s)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		if text, err = replace(text, p.name, section); err != nil {
			return err
		}
	}
	return os.WriteFile(page, text, 0o644) //nolint:gosec // documentation
}

// measure runs the commands of p whose figures are not there yet.
func (s *settings) measure(ctx context.Context, p *part, out io.Writer) error {
	if found, err := filepath.Glob(filepath.Join(s.figures, p.files)); err != nil || len(found) > 0 {
		return err
	}
	for _, c := range p.commands(s.quick) {
		fmt.Fprintln(out, strings.Join(c.show(), " "))
		file := filepath.Join(s.figures, c.file)
		words := c.run(file)
		cmd := exec.CommandContext(ctx, words[0], words[1:]...)
		cmd.Stderr = os.Stderr
		printed, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("%s: %w", strings.Join(words, " "), err)
		}
		if c.prints {
			if err := os.WriteFile(file, printed, 0o600); err != nil {
				return err
			}
		}
	}
	return nil
}

// A command makes one file of figures. The word FILE in it stands for its name.
type command struct {
	file   string
	words  string
	prints bool // its output is the figures
}

func (c *command) run(file string) []string {
	words := strings.Fields(c.words)
	for i, w := range words {
		words[i] = strings.ReplaceAll(w, "FILE", file)
	}
	return words
}

// show is the command as the page shows it.
func (c *command) show() []string { return c.run(c.file) }
