module github.com/spillway-go/spillway/cluster

go 1.25.0

replace github.com/spillway-go/spillway => ../
