module github.com/spillway-go/spillway/cmd/spillwayd

go 1.25.0

require (
	github.com/spillway-go/spillway v0.0.0
	github.com/spillway-go/spillway/rules/yaml v0.0.0
)

require (
	github.com/go-ole/go-ole v1.2.6 // indirect
	github.com/google/go-cmp v0.7.0 // indirect
	github.com/lufia/plan9stats v0.0.0-20211012122336-39d0f177ccd0 // indirect
	github.com/power-devops/perfstat v0.0.0-20210106213030-5aafc221ea8c // indirect
	github.com/shirou/gopsutil/v3 v3.24.5 // indirect
	github.com/shoenig/go-m1cpu v0.2.1 // indirect
	github.com/tklauser/go-sysconf v0.3.12 // indirect
	github.com/tklauser/numcpus v0.6.1 // indirect
	github.com/yusufpapurcu/wmi v1.2.4 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/sys v0.47.0 // indirect
	golang.org/x/time v0.15.0 // indirect
)

replace github.com/spillway-go/spillway => ../../

replace github.com/spillway-go/spillway/rules/yaml => ../../rules/yaml

replace github.com/spillway-go/spillway/telemetry/prom => ../../telemetry/prom
