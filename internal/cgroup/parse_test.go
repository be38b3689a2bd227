package cgroup_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/cgroup"
)

func TestParseCPUList(t *testing.T) {
	for list, want := range map[string]int{
		"0-2,4": 4, "1-3,5,7-9": 7, "0\n": 1, "": 0, "\n": 0, "0-63": 64, "0-1073741823": 1 << 30,
	} {
		n, err := cgroup.ParseCPUList([]byte(list))
		require.NoError(t, err, list)
		require.Equal(t, want, n, list)
	}
	for _, list := range []string{"3-1", "a", "1-", "-1", ",", "1,", "1,,2", "0-2,2", "4,1", "1-2-3", "0-1073741824", "1 2", "+1", "0x1"} {
		_, err := cgroup.ParseCPUList([]byte(list))
		require.ErrorContains(t, err, "malformed", list)
	}
}

func TestParseMax(t *testing.T) {
	const ms = time.Millisecond
	for text, want := range map[string][2]time.Duration{
		"max 100000\n": {0, 100 * ms}, "50000 100000": {50 * ms, 100 * ms}, "max": {0, 100 * ms}, "20000": {20 * ms, 100 * ms},
		"400000 50000": {400 * ms, 50 * ms},
	} {
		quota, period, err := cgroup.ParseMax([]byte(text))
		require.NoError(t, err, text)
		require.Equal(t, want, [2]time.Duration{quota, period}, text)
	}
	for _, text := range []string{"", "max 0", "1000 0", "0 100000", "-1 100000", "x 100000", "max x", "1 2 3", "9223372036854775807 1"} {
		_, _, err := cgroup.ParseMax([]byte(text))
		require.ErrorContains(t, err, "cpu.max", text)
	}
}

func TestParseCFS(t *testing.T) {
	for text, want := range map[string]float64{"-1": 0, "20000\n": 0.2, "250000": 2.5, "-7": 0} {
		quota, period, err := cgroup.ParseCFS([]byte(text), []byte("100000\n"))
		require.NoError(t, err, text)
		require.Equal(t, want, float64(quota)/float64(period), text)
	}
	for _, bad := range [][2]string{{"1", "0"}, {"1", ""}, {"1", "-1"}, {"0", "1"}, {"", "1"}, {"max", "1"}, {"1.5", "1"}} {
		_, _, err := cgroup.ParseCFS([]byte(bad[0]), []byte(bad[1]))
		require.ErrorContains(t, err, "malformed", "%q", bad)
	}
}

func TestParseStat(t *testing.T) {
	s, err := cgroup.ParseStat([]byte("usage_usec 12345\nnice_usec 1\nnr_periods 3\nnr_throttled 2\nthrottled_usec 8\nfuture x y\n"))
	require.NoError(t, err)
	require.Equal(t, cgroup.Stat{Used: 12_345_000, HasUsed: true, Periods: 3, Throttled: 2, Stopped: 8000}, s)
	s, err = cgroup.ParseStat([]byte("nr_periods 3\nnr_throttled 2\nthrottled_time 8"))
	require.NoError(t, err)
	require.Equal(t, cgroup.Stat{Periods: 3, Throttled: 2, Stopped: 8}, s)
	for _, bad := range []string{"usage_usec", "usage_usec -1", "nr_periods 1.5", "nr_throttled x", "throttled_usec 99999999999999999999", "throttled_time z", "usage_usec 9223372036854775807"} {
		_, err := cgroup.ParseStat([]byte(bad))
		require.ErrorContains(t, err, bad)
	}
}

func FuzzParseCPUList(f *testing.F) {
	for _, s := range []string{"0-2,4", "1-3,5,7-9", "3-1", "", "0-99999", "1,2,3\n", "5,5"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := cgroup.ParseCPUList(b)
		if err != nil {
			require.Zero(t, n)
			return
		}
		// What is accepted means what a plain reading of it means: count the members one by one.
		members := map[int]bool{}
		for part := range strings.SplitSeq(strings.TrimSpace(string(b)), ",") {
			var lo, hi int
			switch k, _ := fmt.Sscanf(part, "%d-%d", &lo, &hi); k {
			case 0:
				require.Empty(t, part)
				continue
			case 1:
				hi = lo
			}
			if hi-lo > 1e5 {
				return // too long to count
			}
			for i := lo; i <= hi; i++ {
				members[i] = true
			}
		}
		require.Len(t, members, n)
	})
}

func FuzzParseLimits(f *testing.F) {
	f.Add("max 100000", "100000")
	f.Add("50000 100000", "0")
	f.Add("-1", "100000")
	f.Fuzz(func(t *testing.T, a, b string) {
		if quota, period, err := cgroup.ParseMax([]byte(a)); err == nil {
			require.Positive(t, period)
			require.GreaterOrEqual(t, quota, time.Duration(0))
		}
		if quota, period, err := cgroup.ParseCFS([]byte(a), []byte(b)); err == nil {
			require.Positive(t, period)
			require.GreaterOrEqual(t, quota, time.Duration(0))
		}
	})
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("usage_usec 12345\nnr_periods 3\nnr_throttled 2\nthrottled_usec 8\n"))
	f.Add([]byte("nr_periods 3\nthrottled_time 8"))
	f.Add([]byte("usage_usec"))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := cgroup.ParseStat(b)
		if err != nil {
			require.Zero(t, s)
			return
		}
		require.GreaterOrEqual(t, s.Used, time.Duration(0))
		require.GreaterOrEqual(t, s.Stopped, time.Duration(0))
		require.Equal(t, s.HasUsed, strings.Contains("\n"+string(b), "\nusage_usec "))
	})
}

// FuzzFind feeds /proc files of any content to Find over a tree in which everything else is in order. It must find a
// group or say that there is none; never panic, and never leave the tree.
func FuzzFind(f *testing.F) {
	for _, layout := range layouts {
		fsys := tree(layout.tree)
		f.Add(fsys["proc/self/cgroup"].Data, fsys["proc/self/mountinfo"].Data)
	}
	f.Add([]byte("0::/../../x"), []byte(`1 2 3 /../.. /a\04\134\777 rw - cgroup2 c rw`))
	f.Fuzz(func(t *testing.T, membership, mounts []byte) {
		fsys := fstest.MapFS{
			"proc/self/cgroup":       {Data: membership},
			"proc/self/mountinfo":    {Data: mounts},
			"sys/fs/cgroup/cpu.stat": {Data: []byte("usage_usec 5\n")},
			"sys/fs/cgroup/cpu.max":  {Data: []byte("50000 100000\n")},
		}
		g, err := cgroup.Find(fsys)
		if err != nil {
			require.Nil(t, g)
			return
		}
		defer g.Close()
		require.Contains(t, []int{1, 2}, g.Version())
		levels, err := g.Levels(nil)
		if err == nil {
			require.NotEmpty(t, levels)
			require.True(t, strings.HasPrefix(levels[0].Path, "/"), levels[0].Path)
		}
	})
}
