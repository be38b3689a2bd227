package law

import "math"

// A quota is what a CPU quota takes from the process, while it stops it in every period. It is remembered for seconds, since a
// period in which the process happened to use less says little.
type quota struct {
	paused float64 // share of the time
	pause  float64 // seconds in one period
}

// step records the reading r.
func (q *quota) step(r *Reading) {
	keep := math.Exp(-0.4 * r.Dt)
	q.paused = math.Max(q.paused*keep, 1-r.Running)
	q.pause = math.Max(q.pause*keep, r.Pause)
}

// bites reports whether the quota stops the process.
func (q *quota) bites() bool { return q.paused > 0.05 }

// running returns the share of the time that the quota leaves.
func (q *quota) running() float64 { return 1 - q.paused }
