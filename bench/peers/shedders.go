package peers

import (
	"sync/atomic"
	"time"

	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
	"github.com/failsafe-go/failsafe-go/adaptivethrottler"
	"github.com/go-kratos/aegis/ratelimit"
	"github.com/go-kratos/aegis/ratelimit/bbr"
	"github.com/zeromicro/go-zero/core/load"
	"github.com/zeromicro/go-zero/core/logx"
	"github.com/zeromicro/go-zero/core/stat"

	"github.com/spillway-go/spillway/lab/overload"
)

// goZero is go-zero's shedder. Its logs are off: by default each refusal writes a line.
func goZero(Facts) (Admission, error) {
	logx.Disable()
	shed := load.NewAdaptiveShedder()
	return Admission{
		Admit: func() (func(), bool) {
			promise, err := shed.Allow()
			if err != nil {
				return nil, false
			}
			return promise.Pass, true
		},
		View: func() overload.View {
			return overload.View{CPUSmoothed: overload.Known(float64(stat.CpuUsage()) / 1000)}
		},
	}, nil
}

// aegis is the BBR limiter of aegis, the one that kratos uses.
func aegis(Facts) (Admission, error) {
	limiter := bbr.NewLimiter()
	return Admission{
		Admit: func() (func(), bool) {
			done, err := limiter.Allow()
			if err != nil {
				return nil, false
			}
			return func() { done(ratelimit.DoneInfo{}) }, true
		},
		View: func() overload.View {
			s := limiter.Stat()
			return overload.View{
				CPUSmoothed: overload.Known(float64(s.CPU) / 1000),
				InFlight:    overload.Known(float64(s.InFlight)),
				Limit:       overload.Known(float64(s.MaxInFlight)),
				Extra:       map[string]float64{"max_pass": float64(s.MaxPass), "min_rt_ms": float64(s.MinRt)},
			}
		},
	}, nil
}

// failsafeLimiter is failsafe-go's adaptive limiter with its defaults, through its cheapest interface. Its queue is
// off, as by default: with the queue the goodput is lower.
func failsafeLimiter(Facts) (Admission, error) {
	limiter := adaptivelimiter.NewWithDefaults[any]()
	return Admission{
		Admit: func() (func(), bool) {
			permit, ok := limiter.TryAcquirePermit()
			if !ok {
				return nil, false
			}
			return permit.Record, true
		},
		View: func() overload.View {
			return overload.View{
				Limit:    overload.Known(float64(limiter.Limit())),
				InFlight: overload.Known(float64(limiter.Inflight())),
			}
		},
	}, nil
}

// throttled is the latency from which the throttler counts an answer as a failure: it is worthless then.
const throttled = 500 * time.Millisecond

// failsafeThrottler is failsafe-go's adaptive throttler with its defaults. It refuses at random by the share of failures.
func failsafeThrottler(Facts) (Admission, error) {
	throttler := adaptivethrottler.NewWithDefaults[any]()
	var inFlight atomic.Int64
	return Admission{
		Admit: func() (func(), bool) {
			if !throttler.TryAcquirePermit() {
				return nil, false
			}
			inFlight.Add(1)
			begin := time.Now()
			return func() {
				inFlight.Add(-1)
				if time.Since(begin) > throttled {
					throttler.RecordFailure()
				} else {
					throttler.RecordSuccess()
				}
			}, true
		},
		View: func() overload.View {
			return overload.View{
				InFlight: overload.Known(float64(inFlight.Load())),
				Extra:    map[string]float64{"refusal_rate": throttler.RejectionRate()},
			}
		},
	}, nil
}
