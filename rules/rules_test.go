package rules_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/adaptive"
	"github.com/spillway-go/spillway/breaker"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/rules"
	"github.com/spillway-go/spillway/shedder"
)

// TestMain keeps the lines about applied and refused documents out of the output.
func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	if role := os.Getenv("SPILLWAY_RULES_WRITER"); role != "" {
		writeForEver(role)
	}
	os.Exit(m.Run())
}

// A plain is a policy of a user, without Check.
type plain struct {
	o     atomic.Pointer[plainOptions]
	tunes atomic.Int64
	fail  func(plainOptions) error
}

type plainOptions struct {
	Name   string
	A, B   int
	Inner  struct{ Depth time.Duration }
	List   []part
	Small  map[string]uint8
	OnDone func()
	Fixed  int `tune:"-"`
	hidden int
}

type part struct {
	Name  string
	Share float64
	Read  func() float64
}

func newPlain() *plain {
	p := new(plain)
	p.o.Store(&plainOptions{Name: "p", A: 1, B: 2, hidden: 3, List: []part{{Name: "x", Share: .5}, {Name: "y", Share: .25, Read: func() float64 { return 1 }}}})
	return p
}

func (p *plain) Options() plainOptions { return *p.o.Load() }

func (p *plain) Tune(o plainOptions) error {
	p.tunes.Add(1)
	if p.fail != nil {
		if err := p.fail(o); err != nil {
			return err
		}
	}
	p.o.Store(&o)
	return nil
}

// A checked is a plain with Check.
type checked struct{ *plain }

func (c checked) Check(o plainOptions) (plainOptions, error) {
	if o.A == 0 {
		o.A = 1000 // the default
	}
	if o.A < 0 {
		return o, fmt.Errorf("plain: A must not be negative, got %d", o.A)
	}
	return o, nil
}

func newSet(t testing.TB, targets map[string]rules.Target) *rules.Set {
	t.Helper()
	s, err := rules.New(targets)
	require.NoError(t, err)
	return s
}

func TestDocumentsThatAreRefused(t *testing.T) {
	p := checked{newPlain()}
	lim := spillway.Must(limiter.New(limiter.Bucket{Rate: limiter.Per(10, time.Second)}))
	s := newSet(t, map[string]rules.Target{"p": rules.Of(p), "lim": rules.Of(lim)})
	before := s.Document()
	deep := strings.Repeat(`{"a":`, 13) + "1" + strings.Repeat("}", 13)
	for _, c := range []struct{ document, want string }{
		{"", "rules: the document is empty"},
		{" \n\t", "rules: the document is empty"},
		{"\xff", "rules: the document must be UTF-8"},
		{strings.Repeat(" ", 1<<20+1), "rules: a document must be at most 1048576 bytes, got 1048577"},
		{"{", "rules: the document is not JSON: line 1: unexpected end of JSON input"},
		{"{\n\"rules\": {\n]", "rules: the document is not JSON: line 3: invalid character ']'"},
		{`{"rules": {}} {}`, "rules: the document is not JSON: line 1: invalid character '{' after top-level value"},
		{`[]`, "rules: a document must be an object, got []"},
		{`null`, "rules: a document must be an object, got null"},
		{`{}`, `rules: a document must have the field "rules"`},
		{`{"rules": null}`, "rules: rules must be an object, got null"},
		{`{"rules": {}, "note": 1}`, "rules: note must be a text, got 1"},
		{`{"rules": {}, "note": "` + strings.Repeat("x", 1001) + `"}`, "rules: note must be at most 1000 bytes, got 1001"},
		{`{"rules": {}, "schema": 2}`, "rules: schema must be 1, the only version that this program reads, got 2"},
		{`{"rules": {}, "schema": "1"}`, `rules: schema must be 1, the only version that this program reads, got "1"`},
		{`{"rules": {}, "rule": {}}`, `rules: a document has the fields "rules", "stage", "note", "schema" and "$schema", got "rule"`},
		{`{"rules": {}, "stage": 1}`, "rules: stage must be an object, got 1"},
		{`{"rules": {}, "stage": {"enforce": "much"}}`, `rules: stage.enforce must be a number from 0 to 1, got "much"`},
		{`{"rules": {}, "stage": {"enforce": 1.1}}`, "rules: stage.enforce must be a number from 0 to 1, got 1.1"},
		{`{"rules": {}, "stage": {"rules": []}}`, "rules: stage.rules must be an object, got []"},
		{`{"rules": {}, "stage": {"rule": {}}}`, `rules: stage has the fields "enforce" and "rules", got "rule"`},
		{`{"rules": {}, "stage": {"rules": {"p": {}}}}`, `rules: stage: the program has no target "p" with a Stage`},
		{`{"rules": {}, "rules": {}}`, "rules: duplicate key rules"},
		{`{"rules": {"p": {"A": 1, "A": 1}}}`, "rules: duplicate key rules.p.A"},
		{deep, "is deeper than 12 levels"},
		{`{"rules": {"q": {}}}`, `rules: the program has no target "q"`},
		{`{"rules": {"p": null}}`, "rules: p must be an object, got null"},
		{`{"rules": {"p": {"a": 1}}}`, `rules: p has no field "a"; did you mean "A"?`},
		{`{"rules": {"p": {"hidden": 1}}}`, `rules: p has no field "hidden"`},
		{`{"rules": {"p": {"Z": 1}}}`, `rules: p has no field "Z"`},
		{`{"rules": {"p": {"Name": "p"}}}`, "rules: p.Name is set in code, and a document cannot change it"},
		{`{"rules": {"p": {"OnDone": 1}}}`, "rules: p.OnDone is set in code, and a document cannot change it"},
		{`{"rules": {"p": {"Fixed": 1}}}`, "rules: p.Fixed is set in code, and a document cannot change it"},
		{`{"rules": {"p": {"A": null}}}`, "rules: p.A must be a whole number, got null"},
		{`{"rules": {"p": {"A": 1.5}}}`, "rules: p.A must be a whole number, got 1.5"},
		{`{"rules": {"p": {"A": 1e3}}}`, "rules: p.A must be a whole number, got 1e3"},
		{`{"rules": {"p": {"A": 99999999999999999999}}}`, "rules: p.A must be a whole number, got 99999999999999999999"},
		{`{"rules": {"p": {"A": "1"}}}`, `rules: p.A must be a whole number, got "1"`},
		{`{"rules": {"p": {"A": [1]}}}`, "rules: p.A must be a whole number, got [1]"},
		{`{"rules": {"p": {"Inner": 1}}}`, "rules: p.Inner must be an object, got 1"},
		{`{"rules": {"p": {"Inner": {"Depth": 5}}}}`, `rules: p.Inner.Depth must be a duration such as "250ms", got 5`},
		{`{"rules": {"p": {"Inner": {"Depth": "5"}}}}`, `rules: p.Inner.Depth must be a duration such as "250ms", got "5"`},
		{`{"rules": {"p": {"List": {"z": {"Share": 1}}}}}`, `rules: p.List has no element "z"`},
		{`{"rules": {"p": {"List": [{"Share": 1}]}}}`, `rules: p.List must be an object, got [{"Share":1}]`},
		{`{"rules": {"p": {"List": {"x": {"Share": "much"}}}}}`, `rules: p.List.x.Share must be a number, got "much"`},
		{`{"rules": {"p": {"List": {"x": {"Share": 1e999}}}}}`, `rules: p.List.x.Share must be a number, got 1e999`},
		{`{"rules": {"p": {"List": {"x": {"Name": "z"}}}}}`, `rules: p.List.x.Name is set in code, and a document cannot change it`},
		{`{"rules": {"p": {"Small": {"k": 256}}}}`, "rules: p.Small.k must be a whole number, not negative, got 256"},
		{`{"rules": {"p": {"A": -5}}}`, "rules: p: plain: A must not be negative, got -5"},
		{`{"rules": {"lim": {"Rate": 5}}}`, "rules: lim.Rate must be a text, got 5"},
		{`{"rules": {"lim": {"Rate": "5"}}}`, `rules: lim.Rate: limiter: Rate must be tokens and a time, such as "100/s" or "3/1h30m", got "5"`},
		{`{"rules": {"p": {"A": 7}, "lim": {"Rate": "5/0s"}}}`, "rules: lim: limiter: Bucket: Rate.Per must be positive, got 0s"},
	} {
		require.ErrorContains(t, s.Check([]byte(c.document)), c.want, c.document)
		require.ErrorContains(t, s.Apply([]byte(c.document)), c.want, c.document)
		require.Equal(t, string(before), string(s.Document()), c.document)
	}
	require.Zero(t, p.tunes.Load())
	require.Zero(t, s.Stats().Version)
	require.ErrorContains(t, s.Stats().Err, "Rate.Per must be positive")
}

func TestDocumentIsTheWholeTruth(t *testing.T) {
	p := newPlain()
	s := newSet(t, map[string]rules.Target{"p": rules.Of(p)})
	require.NoError(t, s.Apply([]byte(`{"$schema": "x", "schema": 1, "note": "n", "rules": {"p": {
		"A": 10, "Inner": {"Depth": "off"}, "List": {"y": {"Share": "off"}}, "Small": {"k": 255}}}}`)))
	o := p.Options()
	require.Equal(t, 10, o.A)
	require.Equal(t, 2, o.B)
	require.Equal(t, 3, o.hidden, "what documents cannot reach stays")
	require.Equal(t, time.Duration(-1), o.Inner.Depth)
	require.Equal(t, .5, o.List[0].Share)
	require.Equal(t, -1., o.List[1].Share)
	require.NotNil(t, o.List[1].Read)
	require.Equal(t, map[string]uint8{"k": 255}, o.Small)
	require.Equal(t, []string{
		"p.A: 1 → 10", "p.Inner.Depth: 0s → off", "p.List.y.Share: 0.25 → -1", "p.Small.k: none → 255",
	}, s.Versions()[1].Changes)
	require.Equal(t, "n", s.Versions()[1].Note)

	require.NoError(t, s.Apply([]byte(`{"rules": {"p": {"B": 20}}}`)))
	o = p.Options()
	require.Equal(t, 1, o.A)
	require.Equal(t, 20, o.B)
	require.Zero(t, o.Inner.Depth)
	require.Equal(t, .25, o.List[1].Share)
	require.Empty(t, o.Small)

	document := s.Document()
	require.NoError(t, s.Apply([]byte(`{"rules": {}}`)))
	require.Equal(t, 2, p.Options().B)
	require.NoError(t, s.Apply(document), "Document returns a document")
	require.Equal(t, 20, p.Options().B)
}

// The caller may use the memory of a document again.
func TestApplyCopies(t *testing.T) {
	p := newPlain()
	s := newSet(t, map[string]rules.Target{"p": rules.Of(p)})
	document := []byte(`{"rules": {"p": {"A": 10}}}`)
	require.NoError(t, s.Apply(document))
	clear(document)
	require.NoError(t, s.Apply([]byte(`{"rules": {}}`)))
	require.NoError(t, s.Pin(1))
	require.Equal(t, 10, p.Options().A)
}

func TestSameContentChangesNothing(t *testing.T) {
	p, q := newPlain(), newPlain()
	s := newSet(t, map[string]rules.Target{"p": rules.Of(p), "q": rules.Of(q)})
	document := []byte(`{"rules": {"p": {"A": 10}}}`)
	for range 3 {
		require.NoError(t, s.Apply(document))
	}
	require.NoError(t, s.Apply([]byte(`{"rules": {"p": {"A": 10}}, "note": "other text"}`)))
	require.EqualValues(t, 1, p.tunes.Load())
	require.Zero(t, q.tunes.Load())
	require.EqualValues(t, 2, s.Stats().Applied)
	require.Empty(t, s.Versions()[2].Changes)
}

func TestBounds(t *testing.T) {
	p := checked{newPlain()}
	most := plainOptions{A: 100}
	most.Inner.Depth = time.Minute
	lim := spillway.Must(limiter.New(limiter.Bucket{Rate: limiter.Per(10, time.Second)}))
	s := newSet(t, map[string]rules.Target{
		"p":   rules.Of(p).Between(plainOptions{A: 5, B: 2}, most),
		"lim": rules.Of(lim).Between(limiter.Bucket{Rate: limiter.Per(60, time.Minute)}, nil),
	})
	for document, want := range map[string]string{
		`{"p": {"A": 4}}`:                       "rules: p.A must be in 5..100, got 4",
		`{"p": {"A": 101}}`:                     "rules: p.A must be in 5..100, got 101",
		`{"p": {"A": 0}}`:                       "rules: p.A must be in 5..100, got 1000", // the default
		`{"p": {"B": -1}}`:                      "rules: p.B must be at least 2, got -1",
		`{"p": {"Inner": {"Depth": "61s"}}}`:    "rules: p.Inner.Depth must be above 0 and at most 1m0s, got 1m1s",
		`{"p": {"Inner": {"Depth": "off"}}}`:    "rules: p.Inner.Depth must be above 0 and at most 1m0s, got off",
		`{"lim": {"Rate": "59/m"}, "p": {}}`:    "rules: lim.Rate must be at least 60/m, got 59/m",
		`{"lim": {"Rate": "9/s", "Burst": -1}}`: "rules: lim: limiter: Bucket: Burst must",
	} {
		require.ErrorContains(t, s.Apply([]byte(`{"rules": `+document+`}`)), want)
	}
	require.Zero(t, p.tunes.Load())
	for _, document := range []string{
		`{"p": {"A": 1}}`, // the built value
		`{"p": {"A": 5, "B": 3, "Inner": {"Depth": "1m"}}}`, `{"p": {"A": 100, "Inner": {"Depth": "0s"}}}`, `{"lim": {"Rate": "1/s"}}`,
	} {
		require.NoError(t, s.Apply([]byte(`{"rules": `+document+`}`)))
	}

	for want, bad := range map[string]rules.Target{
		"Between: least must be a struct of the type rules_test.plainOptions, got int":    rules.Of(p).Between(1, nil),
		"Between: most must be a struct of the type rules_test.plainOptions, got *":       rules.Of(p).Between(nil, &most),
		"Between: most must be a struct of the type limiter.Bucket, got limiter.Queue":    rules.Of(lim).Between(nil, limiter.Queue{}),
		"Between: least: the field Name cannot have bounds":                               rules.Of(p).Between(plainOptions{Name: "x"}, nil),
		"Between: most: the field List cannot have bounds":                                rules.Of(p).Between(nil, plainOptions{List: []part{{}}}),
		"the policy must be set, got nil":                                                 rules.Of((*plain)(nil)),
		"rules_test.part must have the methods Options, Rule or Rules, and Tune":          rules.Of(part{}),
		"must have methods like Options() O and Tune(O) error, got func() int and func()": rules.Of(misfit{}),
		"the options of rules_test.number must be a struct, got int":                      rules.Of(number{}),
	} {
		_, err := rules.New(map[string]rules.Target{"p": bad})
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "rules: target p: ")
	}
	_, err := rules.New(map[string]rules.Target{"": rules.Of(p)})
	require.EqualError(t, err, "rules: the name of a target must not be empty")
	_, err = rules.New(map[string]rules.Target{"ü": rules.Of(p)})
	require.ErrorContains(t, err, "must be printable ASCII")
}

type misfit struct{}

func (misfit) Options() int { return 0 }
func (misfit) Tune()        {}

type number struct{}

func (number) Options() int   { return 0 }
func (number) Tune(int) error { return nil }

// A target without Check that fails, or panics, has the targets before it put back.
func TestRollback(t *testing.T) {
	for name, fail := range map[string]func(plainOptions) error{
		"plain: no":               func(plainOptions) error { return errors.New("plain: no") },
		"rules: c panicked: ouch": func(plainOptions) error { panic("ouch") },
	} {
		a, b, c := newPlain(), newPlain(), newPlain()
		c.fail = func(o plainOptions) error {
			if o.A == 1 { // put back
				return nil
			}
			return fail(o)
		}
		s := newSet(t, map[string]rules.Target{"a": rules.Of(a), "b": rules.Of(b), "c": rules.Of(c)})
		err := s.Apply([]byte(`{"rules": {"a": {"A": 5}, "c": {"A": 6}}}`))
		require.ErrorContains(t, err, name)
		require.Equal(t, 1, a.Options().A)
		require.EqualValues(t, 2, a.tunes.Load(), "tuned and put back")
		require.Zero(t, b.tunes.Load())
		require.Equal(t, 1, c.Options().A)
		require.Equal(t, "refused", s.Versions()[1].Result)
	}
	// Bounds that only show after Tune, and a target that cannot be put back.
	a, b := newPlain(), newPlain()
	s := newSet(t, map[string]rules.Target{"a": rules.Of(a), "b": rules.Of(lateDefault{b}).Between(nil, plainOptions{A: 50})})
	a.fail = func(o plainOptions) error {
		if o.A == 1 {
			return errors.New("stuck")
		}
		return nil
	}
	err := s.Apply([]byte(`{"rules": {"a": {"A": 5}, "b": {"A": 7}}}`))
	require.EqualError(t, err, "rules: b.A must be above 0 and at most 50, got 1007 (and a could not be put back: rules: a: stuck)")
	require.Equal(t, 1, b.Options().A)
}

// A lateDefault is a policy without Check whose Tune takes other numbers than it was given.
type lateDefault struct{ *plain }

func (l lateDefault) Tune(o plainOptions) error {
	if o.A != 1 {
		o.A += 1000
	}
	return l.plain.Tune(o)
}

func TestPin(t *testing.T) {
	p := newPlain()
	s := newSet(t, map[string]rules.Target{"p": rules.Of(p)})
	apply := func(a int) error { return s.Apply(fmt.Appendf(nil, `{"rules": {"p": {"A": %d}}}`, a)) }
	require.NoError(t, apply(10))
	require.NoError(t, apply(20))
	require.Error(t, s.Apply([]byte(`{`)))
	require.EqualError(t, s.Pin(3), "rules: Pin: version 3 was refused: rules: the document is not JSON: line 1: unexpected end of JSON input")
	require.EqualError(t, s.Pin(9), "rules: Pin: version must be 0 or one of the last 32, got 9")
	require.NoError(t, s.Unpin(), "not pinned")
	require.NoError(t, s.Pin(1))
	require.Equal(t, 10, p.Options().A)
	require.EqualError(t, apply(30), "rules: Apply: the Set is pinned to version 4: call Unpin first")
	require.NoError(t, s.Pin(0))
	require.Equal(t, 1, p.Options().A)
	require.True(t, s.Stats().Pinned)
	require.NoError(t, s.Unpin())
	require.Equal(t, 20, p.Options().A, "as before the first Pin")
	require.False(t, s.Stats().Pinned)
	require.NoError(t, apply(30))
	require.Equal(t, 30, p.Options().A)

	p.fail = func(plainOptions) error { return errors.New("no") }
	require.ErrorContains(t, s.Pin(1), "rules: p: no")
	require.False(t, s.Stats().Pinned)
	require.Equal(t, 30, p.Options().A)
}

func TestVersionsAreBounded(t *testing.T) {
	p := newPlain()
	s := newSet(t, map[string]rules.Target{"p": rules.Of(p)})
	for i := range 100 {
		require.NoError(t, s.Apply(fmt.Appendf(nil, `{"rules": {"p": {"A": %d}}}`, 10+i)))
	}
	require.Len(t, s.Versions(), 32)
	for i := range 100 {
		require.Error(t, s.Apply(fmt.Appendf(nil, `{"rules": {"p": {"A": "%d"}}}`, 10+i)))
	}
	count := map[string]int{}
	last := -1
	for _, v := range s.Versions() {
		count[v.Result]++
		require.Greater(t, v.Number, last)
		last = v.Number
		require.Len(t, v.Hash, 12)
	}
	require.Equal(t, map[string]int{"applied": 16, "refused": 16}, count)
	require.Equal(t, 100, s.Stats().Version)
	require.NoError(t, s.Pin(90))
	require.Equal(t, 99, p.Options().A)

	many := map[string]uint8{}
	for i := range 200 {
		many[fmt.Sprintf("k%03d", i)] = 1
	}
	require.NoError(t, s.Unpin())
	text, err := json.Marshal(map[string]any{"rules": map[string]any{"p": map[string]any{"Small": many}}})
	require.NoError(t, err)
	require.NoError(t, s.Apply(text))
	versions := s.Versions()
	changes := versions[len(versions)-1].Changes
	require.Len(t, changes, 51)
	require.Equal(t, "and 151 more", changes[50])
}

// Every policy of this module that can be tuned is a target with Check, and takes its own Document.
func TestEveryPolicyIsATarget(t *testing.T) {
	perSecond := limiter.Per(10, time.Second)
	policies := map[string]any{
		"shedder": spillway.Must(shedder.New(&shedder.Options{
			Signals: []shedder.Signal{{Name: "memory", Threshold: .9, Read: func(time.Time) (float64, error) { return 0, nil }}},
		})),
		"adaptive":   spillway.Must(adaptive.New(nil)),
		"breaker":    spillway.Must(breaker.New(nil)),
		"throttle":   spillway.Must(breaker.NewThrottle(nil)),
		"breakers":   spillway.Must(breaker.NewKeyed(nil)),
		"keyed":      spillway.Must(limiter.NewKeyed(limiter.Bucket{Rate: perSecond}, nil)),
		"x/time":     spillway.Must(limiter.New(limiter.XTime{Limiter: rate.NewLimiter(1, 1)})),
		"everything": newPlain(),
	}
	for i, rule := range []limiter.Rule{
		limiter.Bucket{Rate: perSecond}, limiter.FixedWindow{Limit: 1, Period: time.Hour}, limiter.FixedWindow{Limit: 1, Calendar: limiter.EveryDay},
		limiter.SlidingWindow{Limit: 1, Window: time.Hour}, limiter.SlidingLog{Limit: 1, Window: time.Hour}, limiter.WarmUp{Rate: perSecond},
		limiter.Shaper{Rate: perSecond}, limiter.Concurrency{Limit: 5}, limiter.Queue{Limit: 5, MaxQueue: 5},
	} {
		policies[fmt.Sprintf("%d %T", i, rule)] = spillway.Must(limiter.New(rule))
	}
	for name, p := range policies {
		s := newSet(t, map[string]rules.Target{"p": rules.Of(p)})
		document := s.Document()
		require.NoError(t, s.Apply(document), "%s: %s", name, document)
		require.Empty(t, s.Versions()[1].Changes, name)
		if name != "everything" {
			require.True(t, reflect.ValueOf(p).MethodByName("Check").IsValid(), name)
		}
		var schema any
		require.NoError(t, json.Unmarshal(s.Schema(), &schema), name)
	}

	shed := policies["shedder"].(*shedder.Shedder)
	s := newSet(t, map[string]rules.Target{"api": rules.Of(shed), "db": rules.Of(policies["breaker"]), "slow": rules.Of(policies["adaptive"])})
	require.NoError(t, s.Apply([]byte(`{"rules": {
		"api": {"SLO": "300ms", "MaxShed": 0.5, "Weights": {"gold": 2}, "Signals": {"memory": {"Threshold": 0.8}}, "Rotation": "off"},
		"db": {"FailureRate": 0.25, "SlowRate": "off"}, "slow": {"Max": 50}}}`)))
	o := shed.Options()
	require.Equal(t, 300*time.Millisecond, o.SLO)
	require.Equal(t, .8, o.Signals[0].Threshold)
	require.EqualValues(t, shedder.Off, o.Rotation)
	require.Equal(t, map[string]float64{"gold": 2}, o.Weights)
	require.Equal(t, 50, policies["adaptive"].(*adaptive.Limit).Options().Max)
	require.ErrorContains(t, s.Apply([]byte(`{"rules": {"api": {}, "db": {"Window": "1m"}}}`)), "rules: db.Window is set in code")
	require.ErrorContains(t, s.Apply([]byte(`{"rules": {"api": {}, "db": {"OpenFor": "2m"}}}`)), "MaxOpen")
	require.Equal(t, 300*time.Millisecond, shed.Options().SLO)
}

func TestSchema(t *testing.T) {
	p := checked{newPlain()}
	most := plainOptions{A: 100}
	most.Inner.Depth = time.Minute
	lim := spillway.Must(limiter.New(limiter.Bucket{Rate: limiter.Per(10, time.Second)}))
	s := newSet(t, map[string]rules.Target{"p": rules.Of(p).Between(plainOptions{B: 2}, most), "lim": rules.Of(lim)})
	const file = "testdata/schema.json"
	if os.Getenv("SPILLWAY_UPDATE") != "" {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(file, s.Schema(), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), string(s.Schema()), "SPILLWAY_UPDATE=1 writes it")
}

func TestFeed(t *testing.T) {
	s := newSet(t, map[string]rules.Target{"p": rules.Of(newPlain())})
	require.NoError(t, s.Apply([]byte(`{"rules": {"p": {"A": 5}}}`)))
	require.Error(t, s.Apply([]byte(`{"rules": {"p": {"A": "x"}}}`)))
	got := map[string]float64{}
	for m := range s.Metrics() {
		require.Equal(t, s, m.Of)
		got[m.Name+" "+m.Label("result")] = m.Value
	}
	require.Positive(t, got["spillway.rules.changed "])
	delete(got, "spillway.rules.changed ")
	require.Equal(t, map[string]float64{
		"spillway.rules.version ": 1, "spillway.rules.document ": 1, "spillway.rules.pinned ": 0, "spillway.rules.up ": 0,
		"spillway.rules.documents applied": 1, "spillway.rules.documents refused": 1, "spillway.rules.documents held": 0,
		"spillway.rules.read_failures ": 0,
	}, got)
}
