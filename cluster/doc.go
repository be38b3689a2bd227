// Package cluster holds limits that many processes share, on Redis.
package cluster
