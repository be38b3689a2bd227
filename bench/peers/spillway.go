package peers

import (
	"math"
	"net/http"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/internal/overload"
	"github.com/spillway-go/spillway/middleware/httpgate"
	"github.com/spillway-go/spillway/shedder"
)

// protected is Spillway with default options, as a service would use it.
func protected(next http.Handler) (http.Handler, overload.StatsFunc, error) {
	shed, err := shedder.New(nil)
	if err != nil {
		return nil, nil, err
	}
	gate := spillway.New(shed)
	return httpgate.Handler(gate, nil)(next), func() overload.View { return view(gate, shed) }, nil
}

// view shows what the shedder believes. What it does not know stays nil.
func view(gate *spillway.Gate, shed *shedder.Shedder) overload.View {
	g, s := gate.Stats(), shed.Stats()
	v := overload.View{
		InFlight:   overload.Known(float64(s.InFlight)),
		Overloaded: overload.Known(s.Overloaded),
		Admitted:   overload.Known(g.Admitted),
		Refused:    overload.Known(g.Rejected),
		Extra: map[string]float64{
			"max_pass":       s.MaxPass,
			"min_rt_ms":      s.MinRT.Seconds() * 1e3,
			"gain":           s.Gain,
			"queue_delay_ms": s.QueueDelay.Seconds() * 1e3,
		},
	}
	if s.Overloaded {
		v.Reason = s.Reason.String()
	}
	if s.CPUErr == nil {
		v.CPURaw, v.CPUSmoothed = overload.Known(s.CPU), overload.Known(s.CPUSmooth)
	}
	if !math.IsInf(s.Limit, 0) {
		v.Limit = overload.Known(s.Limit)
	}
	return v
}
