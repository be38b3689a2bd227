package spillway_test

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"maps"
	"math"
	"os"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/adaptive"
	"github.com/spillway-go/spillway/breaker"
	"github.com/spillway-go/spillway/deadline"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/middleware/httpgate"
	"github.com/spillway-go/spillway/rules"
	"github.com/spillway-go/spillway/shadow"
	"github.com/spillway-go/spillway/shedder"
)

// snapshots holds a value of every exported Stats type of this module, from an object that nobody has used.
func snapshots(t *testing.T) map[string]any {
	t.Helper()
	gate := spillway.New()
	handler, err := httpgate.New(gate, nil)
	require.NoError(t, err)
	newBreaker := func(string) (breaker.Member, error) { return breaker.New(nil) }
	bucket := spillway.Must(limiter.New(limiter.Bucket{Rate: limiter.Per(1, time.Second)}))
	newBucket := func(string) (limiter.Member, error) { return bucket, nil }
	return map[string]any{
		"GateStats":             gate.Stats(),
		"shadow.Stats":          shadow.New(bucket).Stats()[0],
		"adaptive.Stats":        spillway.Must(adaptive.New(nil)).Stats(),
		"breaker.KeyedStats":    spillway.Must(breaker.NewKeyed(&breaker.KeyedOptions{New: newBreaker})).Stats(),
		"breaker.Stats":         spillway.Must(breaker.New(nil)).Stats(),
		"breaker.ThrottleStats": spillway.Must(breaker.NewThrottle(nil)).Stats(),
		"deadline.Stats":        spillway.Must(deadline.New(nil)).Stats(),
		"httpgate.Stats":        handler.Stats(),
		"limiter.KeyedStats":    spillway.Must(limiter.NewKeyed(bucket.Rule(), nil)).Stats(),
		"limiter.RegistryStats": spillway.Must(limiter.NewRegistry(&limiter.RegistryOptions{New: newBucket})).Stats(),
		"limiter.Stats":         bucket.Stats(),
		"rules.Stats":           spillway.Must(rules.New(nil)).Stats(),
		"shedder.Stats":         spillway.Must(shedder.New(nil)).Stats(),
	}
}

func TestStatsMarshalToJSON(t *testing.T) {
	all := snapshots(t)
	require.ElementsMatch(t, statsTypes(t), slices.Collect(maps.Keys(all)), "every exported Stats type belongs into snapshots")
	for name, fresh := range all {
		for _, v := range []any{fresh, reflect.Zero(reflect.TypeOf(fresh)).Interface()} {
			out, err := json.Marshal(v)
			require.NoError(t, err, name)
			var fields map[string]any
			require.NoError(t, json.Unmarshal(out, &fields), name)
			for _, f := range reflect.VisibleFields(reflect.TypeOf(v)) {
				if f.Anonymous {
					continue
				}
				require.Contains(t, fields, f.Name, name)
				if f.Type.PkgPath() != "" && f.Type.Kind() == reflect.Uint8 {
					require.IsType(t, "", fields[f.Name], "%s.%s is an enumeration", name, f.Name)
					require.Implements(t, (*encoding.TextUnmarshaler)(nil), reflect.New(f.Type).Interface(), "%s.%s", name, f.Name)
				}
			}
		}
	}
}

func TestShedderStatsInJSON(t *testing.T) {
	read := func(s shedder.Stats) (fields map[string]any) {
		out, err := json.Marshal(s)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(out, &fields))
		return fields
	}
	fields := read(shedder.Stats{Limit: math.Inf(1), Reason: shedder.CPUHigh, CPUErr: errors.New("no CPU")})
	require.Contains(t, fields, "Limit")
	require.Nil(t, fields["Limit"])
	require.Equal(t, "cpu", fields["Reason"])
	require.Equal(t, "no CPU", fields["CPUErr"])
	require.Nil(t, fields["SchedErr"])
	require.InDelta(t, 12.5, read(shedder.Stats{Limit: 12.5})["Limit"], 0)
}

func TestEnumerationsAreText(t *testing.T) {
	comesBack(t, shedder.Calm, shedder.Full, shedder.CPUHigh, shedder.SignalHigh)
	comesBack(t, spillway.Sheddable, spillway.Normal, spillway.Critical, spillway.Critical+2, spillway.Normal+3, spillway.Sheddable-1,
		math.MaxInt, math.MinInt)

	p := spillway.Critical
	for wrong, says := range map[string]string{
		"":                             "name must be sheddable, normal or critical, then nothing, +n or -n",
		"urgent":                       "name must be sheddable, normal or critical, then nothing, +n or -n",
		"normal*2":                     "name must be sheddable, normal or critical, then nothing, +n or -n",
		"normal+":                      "offset after normal must be an integer in range, such as +2 or -1",
		"normal+x":                     "offset after normal must be an integer in range, such as +2 or -1",
		"critical+9223372036854775807": "offset after critical must be an integer in range, such as +2 or -1",
	} {
		require.EqualError(t, p.UnmarshalText([]byte(wrong)), fmt.Sprintf("spillway: Priority: %s, got %q", says, wrong))
	}
	require.Equal(t, spillway.Critical, p, "an error changes nothing")
	out, err := json.Marshal([]spillway.Outcome{spillway.Ignored, spillway.Success, spillway.Failure, spillway.Dropped, spillway.Refused})
	require.NoError(t, err)
	require.JSONEq(t, `["ignored", "success", "failure", "dropped", "refused"]`, string(out))
	out, err = json.Marshal(spillway.Must(breaker.New(nil)).Stats())
	require.NoError(t, err)
	require.Contains(t, string(out), `"State":"closed","Mode":"auto"`)
	_, err = spillway.Outcome(7).MarshalText()
	require.EqualError(t, err, "spillway: Outcome: must be one of the named values, got 7")
}

func comesBack[T interface {
	comparable
	String() string
}](t *testing.T, values ...T,
) {
	t.Helper()
	for _, v := range values {
		out, err := json.Marshal(v)
		require.NoError(t, err)
		require.Equal(t, `"`+v.String()+`"`, string(out))
		var back T
		require.NoError(t, json.Unmarshal(out, &back))
		require.Equal(t, v, back)
	}
}

// statsTypes returns the exported types of this module whose names end in Stats, outside internal folders.
func statsTypes(t *testing.T) []string {
	t.Helper()
	var found []string
	for _, file := range goFiles(t) {
		folder := path.Dir(file)
		if strings.HasSuffix(file, "_test.go") || strings.Contains(folder, "internal") || inNestedModule(folder) {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, d := range f.Decls {
			for _, name := range exported(d) {
				if folder != "." {
					name = path.Base(folder) + "." + name
				}
				if strings.HasSuffix(name, "Stats") {
					found = append(found, name)
				}
			}
		}
	}
	return found
}

func inNestedModule(folder string) bool {
	for ; folder != "."; folder = path.Dir(folder) {
		if _, err := os.Stat(path.Join(folder, "go.mod")); err == nil {
			return true
		}
	}
	return false
}
