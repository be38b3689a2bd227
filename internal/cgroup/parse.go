package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// defaultPeriod is the kernel's quota period if none is given.
const defaultPeriod = 100 * time.Millisecond

// ParseCPUList returns how many CPUs a kernel list such as "0-2,4" names. An empty list names none. Ranges that run
// backwards, overlap or are out of order are errors: the kernel never writes them.
func ParseCPUList(b []byte) (int, error) {
	list := strings.TrimSpace(string(b))
	if list == "" {
		return 0, nil
	}
	count, prev := 0, -1
	for part := range strings.SplitSeq(list, ",") {
		lo, hi, isRange := strings.Cut(part, "-")
		first, err := strconv.ParseUint(lo, 10, 30)
		last := first
		if err == nil && isRange {
			last, err = strconv.ParseUint(hi, 10, 30)
		}
		if err != nil || last < first || int(first) <= prev {
			return 0, fmt.Errorf("cgroup: CPU list %.40q is malformed", list)
		}
		count += int(last-first) + 1
		prev = int(last)
	}
	return count, nil
}

// ParseMax returns the quota and the period of a version 2 cpu.max file: "max 100000" (quota 0, meaning none) or
// "50000 100000".
func ParseMax(b []byte) (quota, period time.Duration, err error) {
	fields := strings.Fields(string(b))
	if len(fields) < 1 || len(fields) > 2 {
		return 0, 0, fmt.Errorf("cgroup: cpu.max %.40q is malformed", b)
	}
	period = defaultPeriod
	if len(fields) == 2 {
		if period, err = parseMicros(fields[1]); err != nil || period == 0 {
			return 0, 0, fmt.Errorf("cgroup: cpu.max %.40q has a malformed period", b)
		}
	}
	if fields[0] == "max" {
		return 0, period, nil
	}
	if quota, err = parseMicros(fields[0]); err != nil || quota == 0 {
		return 0, 0, fmt.Errorf("cgroup: cpu.max %.40q has a malformed quota", b)
	}
	return quota, period, nil
}

// ParseCFS returns the quota and the period of a version 1 group, from its cpu.cfs_quota_us (negative means none,
// returned as 0) and cpu.cfs_period_us files.
func ParseCFS(quotaUs, periodUs []byte) (quota, period time.Duration, err error) {
	q := strings.TrimSpace(string(quotaUs))
	if period, err = parseMicros(strings.TrimSpace(string(periodUs))); err != nil || period == 0 {
		return 0, 0, fmt.Errorf("cgroup: cpu.cfs_period_us %.40q is malformed", periodUs)
	}
	if n, err := strconv.ParseInt(q, 10, 64); err == nil && n < 0 {
		return 0, period, nil
	}
	if quota, err = parseMicros(q); err != nil || quota == 0 {
		return 0, 0, fmt.Errorf("cgroup: cpu.cfs_quota_us %.40q is malformed", quotaUs)
	}
	return quota, period, nil
}

// Stat holds the counts of a cpu.stat file since the group was made. A version 1 file has no Used.
type Stat struct {
	Used      time.Duration // CPU time used
	HasUsed   bool          // whether the file says so
	Periods   uint64        // quota periods in which the group ran
	Throttled uint64        // the periods in which it was stopped because its quota was used up
	Stopped   time.Duration // how long its threads were stopped in total
}

// ParseStat reads a cpu.stat file of either version. Unknown lines are skipped; a malformed known line is an error.
func ParseStat(b []byte) (Stat, error) {
	var s Stat
	for len(b) > 0 {
		var line []byte
		line, b, _ = bytes.Cut(b, []byte{'\n'})
		key, value, _ := bytes.Cut(line, []byte{' '})
		var err error
		switch string(key) {
		case "usage_usec":
			s.Used, err = parseMicros(string(value))
			s.HasUsed = true
		case "nr_periods":
			s.Periods, err = strconv.ParseUint(string(value), 10, 64)
		case "nr_throttled":
			s.Throttled, err = strconv.ParseUint(string(value), 10, 64)
		case "throttled_usec":
			s.Stopped, err = parseMicros(string(value))
		case "throttled_time":
			s.Stopped, err = ParseNanos(value)
		}
		if err != nil {
			return Stat{}, fmt.Errorf("cgroup: cpu.stat line %.40q is malformed", line)
		}
	}
	return s, nil
}

// ParseNanos reads a count of nanoseconds, such as a version 1 cpuacct.usage file.
func ParseNanos(b []byte) (time.Duration, error) {
	n, err := strconv.ParseUint(string(bytes.TrimSpace(b)), 10, 63)
	if err != nil {
		return 0, fmt.Errorf("cgroup: %.40q is not a count of nanoseconds", b)
	}
	return time.Duration(n), nil
}

var errRange = errors.New("out of range")

func parseMicros(s string) (time.Duration, error) {
	n, err := strconv.ParseUint(s, 10, 63)
	if err != nil {
		return 0, err
	}
	if n > math.MaxInt64/uint64(time.Microsecond) {
		return 0, errRange
	}
	return time.Duration(n) * time.Microsecond, nil
}
