package stats_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/stats"
)

// childEnv tells the test binary that it runs as the child of TestCPUInRealCgroup, and how hard to work.
const childEnv = "SPILLWAY_STATS_TEST_DUTY"

const (
	childQuota = 0.5 // CPUs
	childRun   = 2200 * time.Millisecond
)

// TestCPUInRealCgroup measures children in control groups of their own, limited to half a CPU. It runs in real time,
// since only the kernel can say what a quota does, and so do the children it starts.
func TestCPUInRealCgroup(t *testing.T) {
	for _, test := range []struct {
		name   string
		duty   float64
		acct   bool // whether the child's CPU time is accounted for in its own group
		lo, hi float64
	}{
		{"Spinning", 1, true, 0.95, 1},
		{"HalfDuty", 0.5, true, 0.45, 0.55},
		{"HalfDutyAccountedForInTheRoot", 0.5, false, 0.45, 0.55},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			// A busy machine may let the child wait, and it works more than its duty later. It does not do so each time.
			for attempt := 1; ; attempt++ {
				mean, smoothed := measureInCgroup(t, test.duty, test.acct)
				if min(mean, smoothed) >= test.lo && max(mean, smoothed) <= test.hi {
					return
				}
				t.Logf("mean usage %.3f, smoothed %.3f, want %v to %v", mean, smoothed, test.lo, test.hi)
				require.Less(t, attempt, 4, "never within the bounds")
			}
		})
	}
}

// measureInCgroup returns the mean usage that the child has seen, and the last smoothed one.
func measureInCgroup(t *testing.T, duty float64, acct bool) (mean, smoothed float64) {
	t.Helper()
	samples := runInCgroup(t, duty, acct)
	require.GreaterOrEqual(t, len(samples), 6)
	for _, s := range samples {
		t.Logf("usage %.3f smoothed %.3f over %v, limit %v of %s %s, throttled %v, %d of %d periods",
			s.Usage, s.Smoothed, s.Span, s.Limit, s.Source, s.Level, s.Throttled, s.ThrottledPeriods, s.Periods)
		require.Equal(t, childQuota, s.Limit)
		require.Contains(t, s.Source, "cgroup")
		require.Contains(t, s.Level, "spillway-test-")
		require.Equal(t, !acct, strings.HasSuffix(s.Level, " (process)"))
		mean += s.Usage / float64(len(samples))
	}
	return mean, samples[len(samples)-1].Smoothed
}

// runInCgroup runs the child under the quota and returns what its CPU published.
func runInCgroup(t *testing.T, duty float64, acct bool) []stats.CPUSample {
	t.Helper()
	dirs := makeCgroup(t)
	if !acct {
		if len(dirs) < 2 {
			t.Skip("SKIPPED: quota and accounting are one here, so the case does not arise")
		}
		dirs = dirs[:1]
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestCgroupChild$", "-test.v=false")
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0", fmt.Sprintf("%s=%v", childEnv, duty))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	for _, dir := range dirs {
		// cgroup.procs moves all threads that the child has by now; those to come are born there.
		require.NoError(t, os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)), 0))
	}
	_, err = stdin.Write([]byte("g")) // the child stops at the end of its input otherwise
	require.NoError(t, err)

	var samples []stats.CPUSample
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		var s stats.CPUSample
		if json.Unmarshal(lines.Bytes(), &s) == nil {
			samples = append(samples, s)
		}
	}
	require.NoError(t, stdin.Close())
	require.NoError(t, cmd.Wait())
	return samples
}

// TestCgroupChild is the child: it works for childRun at the given share of its quota and prints each new sample.
func TestCgroupChild(t *testing.T) {
	duty, err := strconv.ParseFloat(os.Getenv(childEnv), 64)
	if err != nil {
		return // not a child
	}
	if _, err := os.Stdin.Read(make([]byte, 1)); err != nil {
		return
	}
	cpu, err := stats.NewCPU(nil) // the defaults must find the group by themselves
	require.NoError(t, err)
	out := json.NewEncoder(os.Stdout)
	before := cpuTime(t)
	begin, seen := time.Now(), uint64(0)
	cpu.Sample(begin)
	for {
		now := time.Now()
		elapsed := now.Sub(begin)
		if elapsed > childRun {
			return
		}
		if s := cpu.Sample(now); s.Err == nil && s.Samples > seen {
			seen = s.Samples
			require.NoError(t, out.Encode(s))
		}
		if used := cpuTime(t) - before; duty < 1 && used.Seconds() > duty*childQuota*elapsed.Seconds() {
			time.Sleep(2 * time.Millisecond) // the load that is measured: idle for a part of each quota period
		}
	}
}

// cpuTime is what this process has used.
func cpuTime(t *testing.T) time.Duration {
	var usage syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// cgroups counts the groups, so that each has a name of its own.
var cgroups atomic.Int64

// makeCgroup makes a group with the quota in each hierarchy that takes part, and removes it in the end.
func makeCgroup(t *testing.T) (dirs []string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: making a control group takes root; the CPU sensor was not tested against the kernel")
	}
	name := fmt.Sprintf("spillway-test-%d-%s-%d", os.Getpid(), filepath.Base(t.Name()), cgroups.Add(1))
	const root = "/sys/fs/cgroup"
	parents := []string{root}
	// The weight keeps whatever else runs on the machine from taking the quota away.
	files := map[string]string{"cpu.max": "50000 100000", "cpu.weight": "10000"}
	if _, err := os.Stat(root + "/cpu/cpu.cfs_quota_us"); err == nil {
		parents = []string{root + "/cpu", root + "/cpuacct"}
		files = map[string]string{"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "50000", "cpu.shares": "262144"}
	}
	for i, parent := range parents {
		dir := filepath.Join(parent, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			if i > 0 && errors.Is(err, os.ErrExist) {
				continue // cpu and cpuacct are one hierarchy
			}
			t.Skipf("SKIPPED: no control group can be made here (%v); the CPU sensor was not tested against the kernel", err)
		}
		t.Cleanup(func() { removeCgroup(t, dir) })
		dirs = append(dirs, dir)
	}
	for file, text := range files {
		if err := os.WriteFile(filepath.Join(dirs[0], file), []byte(text), 0); err != nil {
			t.Skipf("SKIPPED: no quota can be set here (%v); the CPU sensor was not tested against the kernel", err)
		}
	}
	return dirs
}

// removeCgroup removes a group whose last process may not be quite gone yet.
func removeCgroup(t *testing.T, dir string) {
	for range 50 {
		err := os.Remove(dir)
		if err == nil || errors.Is(err, os.ErrNotExist) {
			return
		}
		time.Sleep(20 * time.Millisecond) // the kernel offers nothing to wait on
	}
	t.Errorf("control group %s could not be removed", dir)
}
