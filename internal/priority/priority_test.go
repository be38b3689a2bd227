package priority_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/priority"
)

func rule(t testing.TB, r priority.Rule) *priority.Rule {
	t.Helper()
	out, err := priority.New("test", r)
	require.NoError(t, err)
	return out
}

func TestParse(t *testing.T) {
	own := rule(t, priority.Rule{})
	sbi := rule(t, priority.Rule{Lower: true, Zero: 16, Min: -12, Max: 12})
	calm := rule(t, priority.Rule{Min: -4, Max: 0})
	for _, c := range []struct {
		rule *priority.Rule
		text string
		want spillway.Priority
		ok   bool
	}{
		{own, "2", 2, true}, {own, "-3", -3, true}, {own, "+1", 1, true}, {own, " 4\t", 4, true}, {own, "0", 0, true},
		{own, "9", 4, true}, {own, "-9", -4, true}, {own, "99999999999999999999999", 4, true}, {own, "-99999999999999999999999", -4, true},
		{own, "critical", 4, true}, {own, "normal-1", -1, true}, {own, "sheddable+2", -2, true}, {own, "critical+9", 4, true},
		{own, "", 0, false}, {own, "-", 0, false}, {own, "1.5", 0, false}, {own, "0x4", 0, false}, {own, "urgent", 0, false},
		{own, "--1", 0, false}, {own, "1 2", 0, false}, {own, "Critical", 0, false}, {own, "٣", 0, false},
		{own, "0000000000000000000000000000000001", 0, false},
		{sbi, "0", 12, true}, {sbi, "15", 1, true}, {sbi, "16", 0, true}, {sbi, "31", -12, true}, {sbi, "-5", 12, true},
		{calm, "critical", 0, true}, {calm, "7", 0, true}, {calm, "-2", -2, true},
	} {
		got, ok := c.rule.Parse(c.text)
		require.Equal(t, c.ok, ok, "%q", c.text)
		require.Equal(t, c.want, got, "%q", c.text)
	}
}

func TestUrgency(t *testing.T) {
	own := rule(t, priority.Rule{})
	for _, c := range []struct {
		line string
		want spillway.Priority
		ok   bool
	}{
		{"u=0", 3, true}, {"u=1, i", 2, true}, {"i, u=3", 0, true}, {"u=5;x=1", -2, true}, {"u=7", -4, true}, {"u=0, u=6", -3, true},
		{"", 0, false}, {"i", 0, false}, {"u=8", 0, false}, {"u=-1", 0, false}, {"u=1.0", 0, false}, {"u", 0, false}, {"U=1", 0, false},
		{"x=u=1", 0, false}, {",,,", 0, false},
	} {
		got, ok := own.Urgency(c.line)
		require.Equal(t, c.ok, ok, "%q", c.line)
		require.Equal(t, c.want, got, "%q", c.line)
	}
}

func TestTrusts(t *testing.T) {
	none := rule(t, priority.Rule{})
	some := rule(t, priority.Rule{Trusted: []netip.Prefix{
		netip.MustParsePrefix("10.1.2.3/8"), netip.MustParsePrefix("::ffff:192.0.2.0/120"), netip.MustParsePrefix("fd00::/8"),
	}})
	for addr, trusted := range map[string]bool{
		"10.9.9.9": true, "::ffff:10.0.0.1": true, "192.0.2.7": true, "fd12::1%eth0": true, "11.0.0.1": false, "192.0.3.1": false,
		"::1": false,
	} {
		require.Equal(t, trusted, some.Trusts(netip.MustParseAddr(addr)), addr)
		require.False(t, none.Trusts(netip.MustParseAddr(addr)), addr)
	}
	require.False(t, some.Trusts(netip.Addr{}))
	require.True(t, rule(t, priority.Rule{TrustUnix: true}).Trusts(netip.Addr{}))
}

func TestRulesThatCannotBe(t *testing.T) {
	for want, r := range map[string]priority.Rule{
		"test: Priority: Min must not be above Max, which is normal, got critical": {Min: spillway.Critical},
		"test: Priority: NormalIs must be in -1048576..1048576, got 1048577":       {Zero: 1<<20 + 1},
		"test: Priority: Trusted must hold networks of at least 1 bit, got 0.0.0.0/0": {
			Trusted: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")},
		},
		"test: Priority: Trusted must hold networks of at least 1 bit, got invalid Prefix": {Trusted: make([]netip.Prefix, 1)},
	} {
		_, err := priority.New("test", r)
		require.EqualError(t, err, want)
	}
}

// Whatever a client sends, the priority stays within the bounds.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"4", "-4", "critical+1", "u=1, i", "9223372036854775808"} {
		f.Add(text, 3)
	}
	f.Fuzz(func(t *testing.T, text string, zero int) {
		for _, lower := range []bool{false, true} {
			r := rule(t, priority.Rule{Lower: lower, Zero: zero % (1 << 20), Min: -2, Max: 3})
			for _, read := range []func(string) (spillway.Priority, bool){r.Parse, r.Urgency} {
				p, ok := read(text)
				require.True(t, p >= -2 && p <= 3)
				require.True(t, ok || p == 0)
			}
		}
	})
}

func TestAllocatesNothing(t *testing.T) {
	own := rule(t, priority.Rule{})
	require.Zero(t, testing.AllocsPerRun(100, func() {
		own.Parse("-4")
		own.Parse("no priority")
		own.Urgency("u=1, i")
	}))
}
