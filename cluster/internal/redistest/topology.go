package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
)

// slots is how many hash slots a Redis Cluster has.
const slots = 16384

// Replica starts a server that follows the one at addr, and returns when it has the same data. If it follows through a
// [Proxy], it can be made to lag.
func Replica(t testing.TB, addr string) *Server {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	s := Start(t, "--replicaof", host+" "+port)
	await(t, "a replica in step", func() error {
		info, err := s.client.Info(context.Background(), "replication").Result()
		if err == nil && !strings.Contains(info, "master_link_status:up") {
			err = errors.New("no link yet")
		}
		return err
	})
	return s
}

// Promote makes a replica a primary, as a failover does. The old primary does not learn of it.
func (s *Server) Promote() {
	s.t.Helper()
	s.Do("REPLICAOF", "NO", "ONE")
}

// StartCluster starts a Redis Cluster of three primaries, which takes about three seconds, because Redis itself waits for two.
func StartCluster(t testing.TB) []*Server {
	t.Helper()
	nodes := make([]*Server, 3)
	for i := range nodes {
		nodes[i] = Start(t, "--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf")
	}
	for i, n := range nodes {
		n.Do("CLUSTER", "SET-CONFIG-EPOCH", i+1)
		own := []any{"CLUSTER", "ADDSLOTS"}
		for slot := slots * i / len(nodes); slot < slots*(i+1)/len(nodes); slot++ {
			own = append(own, slot)
		}
		n.Do(own...)
		if host, port, err := net.SplitHostPort(n.addr); err == nil {
			nodes[0].Do("CLUSTER", "MEET", host, port)
		}
	}
	for _, n := range nodes {
		await(t, "a cluster", func() error {
			info, err := n.client.ClusterInfo(context.Background()).Result()
			if err == nil && (!strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, "cluster_known_nodes:3")) {
				err = errors.New(info)
			}
			return err
		})
		// Until then, messages from one node do not reach the subscribers of another.
		await(t, "connected nodes", func() error {
			known, err := n.client.ClusterNodes(context.Background()).Result()
			if err == nil && (strings.Contains(known, "handshake") || strings.Count(known, " connected") < len(nodes)) {
				err = errors.New(known)
			}
			return err
		})
		await(t, "links both ways", func() error {
			links, err := n.client.ClusterLinks(context.Background()).Result()
			if err == nil && len(links) < 2*(len(nodes)-1) {
				err = fmt.Errorf("%d links", len(links))
			}
			return err
		})
	}
	return nodes
}

// Addrs returns the addresses of servers.
func Addrs(servers []*Server) []string {
	addrs := make([]string, len(servers))
	for i, s := range servers {
		addrs[i] = s.addr
	}
	return addrs
}

// await asks until there is no error.
func await(t testing.TB, what string, ask func() error) {
	t.Helper()
	deadline := time.Now().Add(readyTimeout)
	for {
		err := ask()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("redistest: no sign of %s: %v", what, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
