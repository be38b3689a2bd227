package stats

import "testing"

func BenchmarkEWMAUpdate(b *testing.B) {
	e := newEWMA(b, 0.95)
	both(b, func() { e.Update(0.5) })
}

func BenchmarkEWMAValue(b *testing.B) {
	e := newEWMA(b, 0.95)
	e.Update(0.5)
	both(b, func() { e.Value() })
}
