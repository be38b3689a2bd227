package console

import (
	"fmt"
	"iter"
	"maps"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/spillway-go/spillway/internal/isnil"
	"github.com/spillway-go/spillway/rules"
	"github.com/spillway-go/spillway/stats"
)

// Options are the options of a [Page]. The zero value is valid.
type Options struct {
	// Title is the heading of the page, such as the name of the service. If Title is empty, it is "Spillway".
	Title string

	// Allow reports whether a request may read the page. If Allow is nil, only programs on the same machine may: the peer and
	// the Host must be loopback addresses, and no proxy may have forwarded the request. Allow may be called concurrently.
	Allow func(*http.Request) bool

	// Keys shows metrics with a label "key", which name clients. If Keys is false, they are neither kept nor sent.
	Keys bool

	// Rules are shown below the charts, with their last versions. Add them to the sources of [New], too, so that the
	// sentence and the list of changes mention them. If Rules is nil, there are none.
	Rules *rules.Set

	// Control lets people change the Rules. If Control is nil, the page changes nothing.
	Control *Control
}

// A Page is an [http.Handler] that shows what sources do. It is made by [New], safe for concurrent use, and owns one goroutine
// until [Page.Close].
type Page struct {
	sources map[string]stats.Source
	o       Options
	files   map[string]file

	close func()
	ended chan struct{}

	mu       sync.Mutex
	history  *history
	problems map[string]string // by source: why it could not be read in the last sample
}

// New returns a Page of the sources by name, and begins to keep their metrics: one sample a second for ten minutes, of at most
// 2000 figures. The map is copied. A nil o means the defaults. Close the Page after use.
func New(sources map[string]stats.Source, o *Options) *Page {
	if o == nil {
		o = &Options{}
	}
	now := time.Now()
	p := &Page{
		sources: maps.Clone(sources), o: *o, files: pageFiles(),
		ended: make(chan struct{}), history: newHistory(strconv.FormatInt(now.UnixNano(), 36), now),
	}
	if p.o.Title == "" {
		p.o.Title = "Spillway"
	}
	if p.o.Allow == nil {
		p.o.Allow = local
	}
	stop := make(chan struct{})
	p.close = sync.OnceFunc(func() { close(stop) })
	p.sample(now)
	go p.run(stop)
	return p
}

// Close ends the goroutine and waits for it. The Page then shows the samples that it has. Close may be called more than once.
func (p *Page) Close() error {
	p.close()
	<-p.ended
	return nil
}

func (p *Page) run(stop <-chan struct{}) {
	defer close(p.ended)
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case now := <-ticker.C:
			p.sample(now)
		case <-stop:
			return
		}
	}
}

// sample adds the present metrics to the history.
func (p *Page) sample(now time.Time) {
	readings, problems := read(p.sources, p.o.Keys)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.history.add(now, readings)
	p.problems = problems
}

// read returns the metrics of all sources and, by source, why it could not be read. A source that panics neither ends the
// process nor keeps the others from being read.
func read(sources map[string]stats.Source, keys bool) (readings []reading, problems map[string]string) {
	problems = map[string]string{}
	careful := make(map[string]stats.Source, len(sources))
	for name, source := range sources {
		careful[name] = cautious{source, func(problem string) { problems[name] = problem }}
	}
	for name, m := range stats.Each(careful) {
		if keys || m.Label("key") == "" {
			readings = append(readings, reading{name, m})
		}
	}
	return readings, problems
}

// cautious reports what keeps a source from being read.
type cautious struct {
	source stats.Source
	report func(problem string)
}

// Metrics yields those of the source, up to the first problem.
func (c cautious) Metrics() iter.Seq[stats.Metric] {
	return func(yield func(stats.Metric) bool) {
		defer func() {
			if r := recover(); r != nil {
				c.report(fmt.Sprintf("its Metrics panicked: %v", r))
			}
		}()
		if isnil.Is(c.source) {
			c.report("it is nil")
			return
		}
		for m := range c.source.Metrics() {
			if !yield(m) {
				return
			}
		}
	}
}
