package config

import (
	"errors"
	"math"
	"strconv"
	"strings"
)

// A Size is a number of bytes. As text it is a whole number with the unit KiB, MiB or GiB, or without a unit.
type Size int64

// UnmarshalText reads a Size.
func (s *Size) UnmarshalText(text []byte) error {
	number, unit := string(text), int64(1)
	for suffix, bytes := range map[string]int64{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30} {
		if rest, ok := strings.CutSuffix(number, suffix); ok {
			number, unit = strings.TrimSpace(rest), bytes
			break
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/unit {
		return errors.New(`must be a size such as "512KiB"`)
	}
	*s = Size(n * unit)
	return nil
}
