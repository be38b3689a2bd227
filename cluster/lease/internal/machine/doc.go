// Package machine shares a rate among nodes by leases. It consists of pure state machines: time is an argument
// everywhere.
//
//	table := new(lease.Table)               // the state of a limit in Redis
//	node := lease.NewNode(cfg, "a", now)    // what each process keeps of it
//	reply := table.Sync(micros, cfg, node.Begin(now, offered))
//	node.Apply(later, reply)
//	ok, wait, from := node.Bucket.Take(later, 1) // the decision: local, without a lock
//
// Table is the same algorithm as scripts/lease.lua, figure by figure: tests run both side by side. At every instant,
// the leases of all nodes add up to no more than the limit. That holds when messages are lost, late, repeated or
// reordered, and when a node or the table is lost.
package machine
