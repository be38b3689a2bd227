package cluster

import (
	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/limiter"
)

// errUnmade is the answer of the zero values of this package, which no constructor returned.
var errUnmade = &spillway.Rejection{Policy: "cluster", Reason: limiter.ReasonZero}
