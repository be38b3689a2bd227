package cluster

import (
	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/limiter"
)

// errUnmade is what the zero values of this package answer, which no constructor returned.
var errUnmade = &spillway.Rejection{Policy: "cluster", Reason: limiter.ReasonZero}
