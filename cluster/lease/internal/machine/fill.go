package machine

import (
	"cmp"
	"math"
	"slices"
)

func (t *Table) target(e *Entry) float64 { return min(e.Want, t.Level*e.Weight) + t.Head*e.Weight }

// recompute drops the nodes whose leases have ended, except the one that asks, and computes the level.
func (t *Table) recompute(now float64, c *Config, asks *Entry) {
	latest := now + micros(c.TTL+c.Reclaim)
	t.Used, t.Weight, t.First = 0, 0, Unlimited
	live := make([]*Entry, 0, len(t.Entries))
	for id, e := range t.Entries {
		e.Expiry, e.PrevExp = min(e.Expiry, latest), min(e.PrevExp, latest) // the clock may have been set back
		if e != asks && now >= e.Expiry && now >= e.PrevExp {
			delete(t.Entries, id)
			continue
		}
		live = append(live, e)
		t.Used += e.inUse(now)
		t.Weight += e.Weight
		if e != asks {
			t.First = min(t.First, max(e.Expiry, e.PrevExp))
		}
	}
	t.Nodes = len(live)
	t.Level, t.Head = Fill(c.Rate, t.Weight, live)
	step := micros(c.Interval)
	if t.Nodes <= SmallTable {
		step = math.Floor(step / 4)
	}
	t.Next = now + step
}

// Fill is weighted max-min fairness by water-filling. It returns the rate per unit of weight that no node exceeds, or
// Unlimited and the headroom per unit of weight. It sorts live.
func Fill(rate, weight float64, live []*Entry) (level, head float64) {
	slices.SortFunc(live, func(a, b *Entry) int { return cmp.Compare(a.Want/a.Weight, b.Want/b.Weight) })
	left, w := rate, weight
	for _, e := range live {
		if e.Want/e.Weight > left/w {
			return left / w, 0
		}
		left -= e.Want
		w -= e.Weight
	}
	return Unlimited, Headroom * left / weight
}
