module github.com/spillway-go/spillway

go 1.25.0

require (
	github.com/shirou/gopsutil/v3 v3.24.5 // indirect
	github.com/shoenig/go-m1cpu v0.2.1 // indirect
	github.com/stretchr/testify v1.12.1 // indirect
	golang.org/x/time v0.15.0 // indirect
)
