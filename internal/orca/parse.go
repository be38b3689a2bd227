package orca

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"math"
	"strconv"
	"strings"
)

// A Load is what a load report says. A figure that it does not have is 0. All are finite and at least 0.
type Load struct {
	CPU         float64 // cpu_utilization: share of the CPU in use; may exceed 1
	Application float64 // application_utilization: 1 at the capacity; may exceed it
}

// maxReport is the length of the longest report that is read, in bytes.
const maxReport = 4096

// Parse reads the values of the field Header of an answer: a report as TEXT, JSON or BIN. It reports false if there is not
// exactly one, or if it is not a report. It does not allocate for a report as text.
func Parse(values []string) (l Load, ok bool) {
	if len(values) != 1 || len(values[0]) > maxReport {
		return Load{}, false
	}
	form, report, found := strings.Cut(strings.TrimSpace(values[0]), " ")
	if !found {
		return Load{}, false
	}
	switch form {
	case "TEXT":
		ok = l.parseText(report)
	case "JSON":
		ok = l.parseJSON(report)
	case "BIN":
		b, err := base64.StdEncoding.DecodeString(strings.TrimSpace(report))
		ok = err == nil && l.parseBinary(b)
	}
	if !ok || !valid(l.CPU) || !valid(l.Application) {
		return Load{}, false
	}
	return l, true
}

// ParseBinary reads an xds.data.orca.v3.OrcaLoadReport, as gRPC sends it in the trailer.
func ParseBinary(report string) (l Load, ok bool) {
	if len(report) > maxReport || !l.parseBinary([]byte(report)) || !valid(l.CPU) || !valid(l.Application) {
		return Load{}, false
	}
	return l, true
}

func valid(x float64) bool { return x >= 0 && x <= math.MaxFloat64 }

// parseText reads "cpu_utilization=0.3, application_utilization=1.7". Older servers write a colon for the sign.
func (l *Load) parseText(report string) bool {
	for pair := range strings.SplitSeq(report, ",") {
		at := strings.IndexAny(pair, "=:")
		if at < 0 {
			return false
		}
		var to *float64
		switch strings.TrimSpace(pair[:at]) {
		case "cpu_utilization":
			to = &l.CPU
		case "application_utilization":
			to = &l.Application
		default:
			continue
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(pair[at+1:]), 64)
		if err != nil {
			return false
		}
		*to = v
	}
	return true
}

// parseJSON reads {"cpu_utilization": 0.3}, or the same in the JSON form of protobuf.
func (l *Load) parseJSON(report string) bool {
	var r struct {
		CPU         float64 `json:"cpu_utilization"`
		CPU2        float64 `json:"cpuUtilization"` //nolint:tagliatelle // protobuf writes it
		Application float64 `json:"application_utilization"`
		App2        float64 `json:"applicationUtilization"` //nolint:tagliatelle // as above
	}
	if json.Unmarshal([]byte(report), &r) != nil {
		return false
	}
	l.CPU, l.Application = cmp.Or(r.CPU, r.CPU2), cmp.Or(r.Application, r.App2)
	return true
}

// The numbers and wire types of the fields of an OrcaLoadReport.
const (
	cpuField         = 1
	applicationField = 9

	wireVarint, wireFixed64, wireBytes, wireFixed32 = 0, 1, 2, 5
)

func (l *Load) parseBinary(b []byte) bool {
	for len(b) > 0 {
		tag, n := binary.Uvarint(b)
		if n <= 0 {
			return false
		}
		b = b[n:]
		var size uint64
		switch tag & 7 {
		case wireVarint:
			if _, n = binary.Uvarint(b); n <= 0 {
				return false
			}
			size = uint64(n)
		case wireFixed64:
			size = 8
		case wireFixed32:
			size = 4
		case wireBytes:
			length, n := binary.Uvarint(b)
			if n <= 0 {
				return false
			}
			b = b[n:]
			size = length
		default:
			return false
		}
		if size > uint64(len(b)) {
			return false
		}
		if tag&7 == wireFixed64 {
			switch v := math.Float64frombits(binary.LittleEndian.Uint64(b)); tag >> 3 {
			case cpuField:
				l.CPU = v
			case applicationField:
				l.Application = v
			}
		}
		b = b[size:]
	}
	return true
}
