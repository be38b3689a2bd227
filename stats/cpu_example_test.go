package stats_test

import (
	"errors"
	"fmt"
	"runtime/metrics"
	"time"

	"github.com/spillway-go/spillway/stats"
)

// The usual way: one sampler for the process, pulled with the time.
func ExampleNewCPU() {
	cpu, err := stats.NewCPU(nil)
	if err != nil {
		panic(err)
	}
	if s := cpu.Sample(time.Now()); s.Err == nil {
		fmt.Printf("%.0f %% of %.1f CPUs (%s)\n", 100*s.Smoothed, s.Limit, s.Source)
	} else {
		fmt.Println(s.Err)
	}
	// Output: stats: no reading yet
}

// A steady beat keeps the figure fresh where nobody asks often.
func ExampleSensor_Start() {
	cpu, err := stats.NewCPU(&stats.CPUOptions{Source: stats.ProcessCPU(), Interval: time.Second})
	if err != nil {
		panic(err)
	}
	cpu.Start()
	defer cpu.Close()
	fmt.Println(cpu.Sample(time.Now()).Samples)
	// Output: 0
}

// Any function can tell the usage, and the time can be simulated.
func ExampleNewCPU_read() {
	readings := []float64{0.2, 1, -1, 1}
	cpu, err := stats.NewCPU(&stats.CPUOptions{Read: func() (float64, error) {
		usage := readings[0]
		readings = readings[1:]
		if usage < 0 {
			return 0, errors.New("sensor unplugged")
		}
		return usage, nil
	}})
	if err != nil {
		panic(err)
	}
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for range 4 {
		s := cpu.Sample(now)
		fmt.Printf("raw %.2f, smoothed %.3f, age %v, error %v\n", s.Usage, s.Smoothed, now.Sub(s.Time), s.Err)
		now = now.Add(250 * time.Millisecond)
	}
	// Output:
	// raw 0.20, smoothed 0.200, age 0s, error <nil>
	// raw 1.00, smoothed 0.240, age 0s, error <nil>
	// raw 1.00, smoothed 0.240, age 250ms, error sensor unplugged
	// raw 1.00, smoothed 0.314, age 0s, error <nil>
}

// A source of one's own counts CPU time and says how much may be used.
func ExampleCPUSource() {
	cpu, err := stats.NewCPU(&stats.CPUOptions{Source: new(meter)})
	if err != nil {
		panic(err)
	}
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	cpu.Sample(now)
	s := cpu.Sample(now.Add(time.Second))
	fmt.Printf("%.2f of %v CPUs over %v\n", s.Usage, s.Limit, s.Span)
	// Output: 0.75 of 2 CPUs over 1s
}

// meter has used 1.5 s more each time it is read.
type meter struct{ used time.Duration }

func (m *meter) ReadCPU(time.Time) (stats.CPUReading, error) {
	m.used += 1500 * time.Millisecond
	return stats.CPUReading{Source: "meter", Levels: []stats.CPULevel{{Used: m.used, Limit: 2}}}, nil
}

func ExampleNewSchedLatency() {
	hist := &metrics.Float64Histogram{Counts: []uint64{0, 0}, Buckets: []float64{0, 0.001, 0.100}}
	sched, err := stats.NewSchedLatency(&stats.SchedLatencyOptions{ // nil reads the Go runtime's own
		Read: func() (*metrics.Float64Histogram, error) { return hist, nil },
	})
	if err != nil {
		panic(err)
	}
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	sched.Sample(now)
	hist.Counts[0] += 90
	hist.Counts[1] += 10
	s := sched.Sample(now.Add(100 * time.Millisecond))
	fmt.Println(s.Count, s.Value.Round(time.Millisecond), s.Median.Round(time.Microsecond))
	// Output: 100 90ms 556µs
}
