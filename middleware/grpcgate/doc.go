// Package grpcgate puts a [spillway.Gate] into gRPC servers and clients, as interceptors.
package grpcgate

import _ "github.com/spillway-go/spillway" // the Gate of the doc comment
