package law

import "math"

// A quota is what a CPU quota takes while it stops the process in every period. It is remembered for seconds, since a period
// in which the process happened to use less says little.
type quota struct {
	pause  float64 // seconds in a period
	paused float64 // share of the time
}

// step takes in the reading r.
func (q *quota) step(r *Reading) {
	keep := math.Exp(-0.4 * r.Dt)
	q.pause = math.Max(q.pause*keep, r.Pause)
	q.paused = math.Max(q.paused*keep, 1-r.Running)
}

// bites reports whether the quota stops the process.
func (q *quota) bites() bool { return q.paused > 0.05 }

// spread returns how long a request stays that takes typical seconds where nothing stops the process: longer by the share of
// the time that is left, and by half of the pause in which it began.
func (q *quota) spread(typical float64) float64 {
	return typical/q.running() + q.pause/2
}

// running returns the share of the time that the quota leaves.
func (q *quota) running() float64 { return 1 - q.paused }
