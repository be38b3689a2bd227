// Package usage prints the help and other texts of programs, in lines of at most 80 columns.
package usage

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"unicode/utf8"
)

const columns = 80

// New returns a flag set that prints about and the flags to out when it gets -h. Parse then returns [flag.ErrHelp].
func New(name, about string, out io.Writer) *flag.FlagSet {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.SetOutput(out)
	flags.Usage = func() {
		fmt.Fprintln(flags.Output(), Wrap(about, ""))
		first := true
		flags.VisitAll(func(f *flag.Flag) {
			if first {
				fmt.Fprint(flags.Output(), "\nFlags:\n")
				first = false
			}
			fmt.Fprintln(flags.Output(), describe(f))
		})
	}
	return flags
}

func describe(f *flag.Flag) string {
	value, text := flag.UnquoteUsage(f)
	head := "  -" + f.Name
	if value != "" {
		head += " " + value
	}
	switch f.DefValue {
	case "", "0", "0s", "false":
	default:
		text += " (default " + f.DefValue + ")"
	}
	return head + "\n" + Wrap(text, "      ")
}

// Listen reads the flags of a program that only serves, and returns the address to serve at. The default is that of the
// given URL, which a user can ask meanwhile, with more arguments of curl if it needs them. After -h or wrong flags,
// Listen ends the program.
func Listen(name, about, try string, more ...string) (address string) {
	u, err := url.Parse(try)
	if err != nil {
		panic(err)
	}
	curl := "curl -i"
	if u.Scheme == "https" {
		curl += "k" // the certificate is one for tests
	}
	ask := strings.Join(append(append([]string{curl}, more...), "'"+try+"'"), " ")
	flags := New(name, about+"\n\nWhile it runs, ask it:\n\n"+ask, os.Stdout)
	flags.StringVar(&address, "listen", u.Host, "`ADDRESS` to serve at")
	switch err := flags.Parse(os.Args[1:]); {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(0)
	case err != nil:
		os.Exit(2)
	}
	u.Host = address
	fmt.Fprintln(os.Stdout, "serving", u)
	return address
}

// Wrap breaks the lines of text between words, so that none is wider than 80 columns unless a word is. Each begins with indent.
func Wrap(text, indent string) string {
	var b strings.Builder
	for i, line := range strings.Split(text, "\n") {
		if i > 0 {
			b.WriteByte('\n')
		}
		width := 0
		for word := range strings.FieldsSeq(line) {
			n := utf8.RuneCountInString(word)
			switch {
			case width == 0:
				b.WriteString(indent)
				width = utf8.RuneCountInString(indent)
			case width+1+n > columns:
				b.WriteString("\n" + indent)
				width = utf8.RuneCountInString(indent)
			default:
				b.WriteByte(' ')
				width++
			}
			b.WriteString(word)
			width += n
		}
	}
	return b.String()
}
