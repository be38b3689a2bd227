package caddy

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

func registerDirective() {
	httpcaddyfile.RegisterHandlerDirective("spillway", func(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
		m := new(Handler)
		return m, m.UnmarshalCaddyfile(h.Dispenser)
	})
	httpcaddyfile.RegisterDirectiveOrder("spillway", httpcaddyfile.Before, "basic_auth")
}

// UnmarshalCaddyfile reads the directive, as the package describes it. The error names the option and the line.
func (h *Handler) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the name of the directive
	if d.NextArg() {
		return d.ArgErr()
	}
	return block(d, "spillway", map[string]option{
		"name":    word(&h.Name),
		"shedder": h.parseShedder(d),
		"breaker": func(args []string) error {
			h.Breaker = new(Breaker)
			return h.Breaker.parse(d, args)
		},
		"rate":               h.parseRate(d),
		"concurrency":        h.parseConcurrency(d),
		"priority":           word(&h.Priority),
		"rate_limit_headers": flag(&h.RateLimitHeaders),
		"dry_run":            flag(&h.DryRun),
	})
}

// An option reads the arguments of one line, and its block if it has one.
type option func(args []string) error

// block reads the lines of a block. Only limits may be there more than once.
func block(d *caddyfile.Dispenser, what string, options map[string]option) error {
	seen := map[string]bool{}
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		name := d.Val()
		read, ok := options[name]
		if !ok {
			return d.Errf("%s: there is no option %q", what, name)
		}
		if seen[name] && name != "rate" && name != "concurrency" {
			return d.Errf("%s: %s: is set twice", what, name)
		}
		seen[name] = true
		if err := read(d.RemainingArgs()); err != nil {
			return fmt.Errorf("%s: %s: %w", what, name, err)
		}
	}
	return nil
}

func (h *Handler) parseShedder(d *caddyfile.Dispenser) option {
	return func(args []string) error {
		s := new(Shedder)
		h.Shedder = s
		switch {
		case len(args) == 1 && args[0] == "off":
			s.Off = true
		case len(args) > 0:
			return d.Errf("must be off or a block, got %q", args)
		}
		return block(d, "shedder", map[string]option{
			"cpu": word(&s.CPU), "cpu_threshold": fraction(&s.CPUThreshold), "slo": duration(&s.SLO), "min_limit": number(&s.MinLimit),
			"max_limit": number(&s.MaxLimit), "max_shed": fraction(&s.MaxShed), "key": word(&s.Key),
		})
	}
}

func (b *Breaker) parse(d *caddyfile.Dispenser, args []string) error {
	if len(args) > 0 {
		return d.Errf("must be a block, got %q", args)
	}
	return block(d, "breaker", map[string]option{
		"failure_rate": fraction(&b.FailureRate), "consecutive": number(&b.Consecutive), "min_calls": number(&b.MinCalls),
		"window": duration(&b.Window), "open_for": duration(&b.OpenFor), "slow_call": duration(&b.SlowCall),
	})
}

func (h *Handler) parseRate(d *caddyfile.Dispenser) option {
	return func(args []string) error {
		if len(args) != 2 {
			return d.Errf("must be a name and a rate such as 100/s, got %q", args)
		}
		r := Rate{Name: args[0]}
		if err := r.Rate.UnmarshalText([]byte(args[1])); err != nil {
			return d.WrapErr(err)
		}
		err := block(d, "rate", map[string]option{"key": word(&r.Key), "burst": number(&r.Burst), "max_keys": number(&r.MaxKeys)})
		h.Rates = append(h.Rates, r)
		return err
	}
}

func (h *Handler) parseConcurrency(d *caddyfile.Dispenser) option {
	return func(args []string) error {
		if len(args) != 2 {
			return d.Errf("must be a name and a number, got %q", args)
		}
		c := Concurrency{Name: args[0]}
		if err := number(&c.Limit)(args[1:]); err != nil {
			return err
		}
		err := block(d, "concurrency", map[string]option{"key": word(&c.Key), "max_keys": number(&c.MaxKeys)})
		h.Concurrency = append(h.Concurrency, c)
		return err
	}
}

// one returns an option with one argument.
func one(read func(string) error) option {
	return func(args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("must have one value, got %q", args)
		}
		return read(args[0])
	}
}

func word(to *string) option {
	return one(func(s string) error {
		*to = s
		return nil
	})
}

func number(to *int) option {
	return one(func(s string) error {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			return fmt.Errorf("must be a whole number of at least 1, got %q", s)
		}
		*to = n
		return nil
	})
}

func fraction(to *float64) option {
	return one(func(s string) error {
		f, err := strconv.ParseFloat(s, 64)
		if err != nil || !(f > 0 && f <= 1) {
			return fmt.Errorf("must be a fraction above 0, up to 1, got %q", s)
		}
		*to = f
		return nil
	})
}

func duration(to *caddy.Duration) option {
	return one(func(s string) error {
		d, err := time.ParseDuration(s)
		if err != nil || d <= 0 {
			return fmt.Errorf("must be a positive duration such as 250ms, got %q", s)
		}
		*to = caddy.Duration(d)
		return nil
	})
}

func flag(to *bool) option {
	return func(args []string) error {
		if len(args) > 0 {
			return errors.New("takes no value")
		}
		*to = true
		return nil
	}
}

var (
	_ caddyfile.Unmarshaler       = (*Handler)(nil)
	_ caddy.Provisioner           = (*Handler)(nil)
	_ caddy.Validator             = (*Handler)(nil)
	_ caddy.CleanerUpper          = (*Handler)(nil)
	_ caddyhttp.MiddlewareHandler = (*Handler)(nil)
)
