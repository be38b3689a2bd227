package grpcgate

import (
	"iter"

	"github.com/spillway-go/spillway/internal/feed"
	"github.com/spillway-go/spillway/stats"
)

var statsRows = []feed.Row{
	feed.Count("Exempt", "spillway.grpc.server.exempt", "{call}", "Calls that bypassed the gate."),
	feed.Gauge("ExemptStreams", "spillway.grpc.server.exempt_streams", "{stream}", "Streams that bypassed the gate and are open."),
	feed.Gauge("Streams", "spillway.grpc.server.streams", "{stream}", "Streams that have left the gate and are open."),
	feed.Count("StreamsRefused", "spillway.grpc.server.streams_refused", "{stream}", "Streams refused because too many were open."),
	feed.Count("Tapped", "spillway.grpc.server.tapped", "{call}", "Calls refused before their message was read."),
	feed.Gauge("Streams", "spillway.grpc.client.streams", "{stream}", "Streams that have left the gate and are open."),
	feed.Count("StreamsRefused", "spillway.grpc.client.streams_refused", "{stream}", "Streams refused because too many were open."),
	feed.Count("HeldBack", "spillway.grpc.client.held_back", "{call}", "Calls not made because the server asked for it."),
	feed.Count("Throttled", "spillway.grpc.client.throttled", "{call}", "Calls not made because the server refused many."),
	feed.Count("Leaked", "spillway.grpc.client.leaked", "{stream}", "Streams that were not read to the end and whose context did not end."),
}

// serverRows is how many of statsRows are those of a Server; the rest are those of a Client.
const serverRows = 5

// Metrics yields the figures of [Server.Stats], and then those of the Gate and its policies.
func (s *Server) Metrics() iter.Seq[stats.Metric] {
	return feed.Join(feed.Of(s, statsRows[:serverRows], s.Stats), s.gate.Metrics())
}

// Metrics yields the figures of [Client.Stats], and then those of the Gate and its policies.
func (c *Client) Metrics() iter.Seq[stats.Metric] {
	return feed.Join(feed.Of(c, statsRows[serverRows:], c.Stats), c.gate.Metrics())
}

var (
	_ stats.Source = (*Server)(nil)
	_ stats.Source = (*Client)(nil)
)
