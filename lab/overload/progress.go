package overload

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/spillway-go/spillway/internal/usage"
)

// lineWidth is the longest line that can be rewritten safely; a line that wraps cannot.
const lineWidth = 79

// progress shows the state of the run: one rewritten line on a terminal, or a plain line now and then elsewhere.
type progress struct {
	out      io.Writer
	terminal bool
	colours  bool // only on a terminal, and not with NO_COLOR

	mu   sync.Mutex
	live int // length of the line to be rewritten
}

func newProgress(out io.Writer) *progress {
	p := &progress{out: out}
	if f, ok := out.(*os.File); ok {
		if info, err := f.Stat(); err == nil {
			p.terminal = info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
			p.colours = p.terminal && os.Getenv("NO_COLOR") == "" && runtime.GOOS != "windows"
		}
	}
	return p
}

// line writes a line that stays.
func (p *progress) line(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
	fmt.Fprintf(p.out, format+"\n", args...)
}

// text writes a paragraph of at most 80 columns.
func (p *progress) text(format string, args ...any) {
	p.line("%s", usage.Wrap(fmt.Sprintf(format, args...), ""))
}

// head writes a paragraph that stands out.
func (p *progress) head(format string, args ...any) {
	p.line("%s", p.in(bold, usage.Wrap(fmt.Sprintf(format, args...), "")))
}

// Colours and weights of a terminal.
const (
	bold  = "1"
	red   = "31"
	green = "32"
)

// in returns text in a colour, where there are colours.
func (p *progress) in(colour, text string) string {
	if !p.colours {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// rewrite shows text in the line that the next text replaces.
func (p *progress) rewrite(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(text) > lineWidth {
		text = text[:lineWidth]
	}
	fmt.Fprintf(p.out, "\r%s%s", text, strings.Repeat(" ", max(p.live-len(text), 0)))
	p.live = len(text)
}

func (p *progress) clear() {
	if p.live > 0 {
		fmt.Fprintf(p.out, "\r%s\r", strings.Repeat(" ", p.live))
		p.live = 0
	}
}

// watch shows the progress of a stretch until the returned function is called, which prints the result.
func (p *progress) watch(g *guardRun, span Span, t *tally) (stop func()) {
	var wg sync.WaitGroup
	done := make(chan struct{})
	start := time.Now()
	if p.terminal {
		wg.Go(func() { p.follow(g, span, t, done) })
	}
	return func() {
		close(done)
		wg.Wait()
		if span.Settle {
			return
		}
		c, over := t.read(), time.Since(start)
		colour := green
		if c.goodput(g, over) < healthyShare*min(span.Load, 1) {
			colour = red
		}
		p.line("%s", p.in(colour, describe(g, span, c, over)))
	}
}

func (p *progress) follow(g *guardRun, span Span, t *tally, done chan struct{}) {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	const back = 5 // beats over which the rates are taken: one second
	last := make([]counts, 0, 64)
	for {
		select {
		case <-done:
			return
		case <-tick.C:
			last = append(last, t.read())
			if n := len(last); n > 1 {
				from := max(n-1-back, 0)
				over := time.Duration(n-1-from) * 200 * time.Millisecond
				p.rewrite(describe(g, span, last[n-1].minus(last[from]), over))
			}
		}
	}
}

func describe(g *guardRun, span Span, c counts, over time.Duration) string {
	name := fmt.Sprintf("%gx", span.Load)
	if span.Settle {
		name = "settle"
	}
	text := fmt.Sprintf("%-8s %6s %5.0f/s  goodput %3.0f%%  refused %3.0f%%  timeout %3.0f%%",
		g.guard, name, float64(c.sent)/over.Seconds(), 100*c.goodput(g, over),
		100*share(c.refused, c.ended), 100*share(c.timeouts, c.ended))
	if s, ok := g.process.latest(); ok {
		text += fmt.Sprintf("  inside %d", s.Running)
		if s.Limit != nil {
			text += fmt.Sprintf("/%.0f", *s.Limit)
		}
	}
	return text
}

// counts is a reading of a tally.
type counts struct{ sent, ended, good, refused, timeouts int64 }

// goodput is the useful answers as a share of the capacity.
func (c counts) goodput(g *guardRun, over time.Duration) float64 {
	return float64(c.good) / over.Seconds() / g.capacity
}

func (t *tally) read() counts {
	return counts{t.sent.Load(), t.ended.Load(), t.good.Load(), t.refused.Load(), t.timeouts.Load()}
}

func (c counts) minus(d counts) counts {
	return counts{c.sent - d.sent, c.ended - d.ended, c.good - d.good, c.refused - d.refused, c.timeouts - d.timeouts}
}

// inTime returns the share of requests answered in time, among those that have ended or should have: due of them were sent
// longer than the SLO ago. Requests that have time left do not count. Without any requests the share is 1.
func (c counts) inTime(due int) float64 {
	judged := max(c.ended, int64(due))
	if judged == 0 {
		return 1
	}
	return float64(c.good) / float64(judged)
}

func share(n, of int64) float64 {
	if of == 0 {
		return 0
	}
	return float64(n) / float64(of)
}
