module github.com/spillway-go/spillway/examples

go 1.25.0

require github.com/spillway-go/spillway v0.0.0

replace github.com/spillway-go/spillway => ../
