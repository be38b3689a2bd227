// Package grafana holds a Grafana board for the metrics of Spillway, and alerts for Prometheus.
//
// Import board.json into Grafana, and add rules.yml to rule_files of Prometheus. Both read the names that package
// telemetry/prom exports. Programs that install boards by themselves find the texts here too. docs/operating.md lists the
// panels and alerts. All three are generated from the tables in the folder generate.
package grafana

import _ "embed" // the texts

//go:generate go run ./generate

// Board is the board as JSON.
//
//go:embed board.json
var Board string

// Rules is a file of alerting and recording rules for Prometheus.
//
//go:embed rules.yml
var Rules string
