package main

import (
	"context"
	"strconv"
	"strings"

	"github.com/spillway-go/spillway/bench/internal/redisserver"
)

// A server is a Redis with its statistics.
type server struct{ *redisserver.Server }

// A redisCommand is the name of a command, as in INFO commandstats.
type redisCommand string

// A commandStat is the server's statistics of one command.
type commandStat struct{ calls, usec float64 }

func (c commandStat) add(other commandStat) commandStat {
	return commandStat{c.calls + other.calls, c.usec + other.usec}
}

func (s *server) commands(ctx context.Context) map[redisCommand]commandStat {
	stats := map[redisCommand]commandStat{}
	for line := range strings.Lines(s.Client.Info(ctx, "commandstats").Val()) {
		name, rest, ok := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":")
		if ok {
			stats[redisCommand(name)] = commandStat{number(rest, "calls="), number(rest, "usec=")}
		}
	}
	return stats
}

// cpu returns the µs that the main thread of the server has used.
func (s *server) cpu(ctx context.Context) float64 {
	info := s.Client.Info(ctx, "cpu").Val()
	return 1e6 * (number(info, "used_cpu_sys_main_thread:") + number(info, "used_cpu_user_main_thread:"))
}

// version returns the version of the server.
func (s *server) version(ctx context.Context) string {
	_, rest, _ := strings.Cut(s.Client.Info(ctx, "server").Val(), "redis_version:")
	v, _, _ := strings.Cut(rest, "\r")
	return v
}

// processed returns how many commands the server has run.
func (s *server) processed(ctx context.Context) float64 {
	return number(s.Client.Info(ctx, "stats").Val(), "total_commands_processed:")
}

// number returns the number behind name, or 0.
func number(info, name string) float64 {
	_, rest, _ := strings.Cut(info, name)
	end := strings.IndexFunc(rest, func(c rune) bool { return (c < '0' || c > '9') && c != '.' })
	if end < 0 {
		end = len(rest)
	}
	v, _ := strconv.ParseFloat(rest[:end], 64)
	return v
}
