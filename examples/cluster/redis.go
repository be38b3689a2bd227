package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// redisOrders say where the server shall listen.
type redisOrders struct{ Port int }

// keepRedis runs an empty redis-server that ends when the parent does, however that ends.
func keepRedis() error {
	var o redisOrders
	if err := orders(&o); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "spillway-cluster")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	cmd := exec.Command("redis-server", "--port", strconv.Itoa(o.Port), "--bind", "127.0.0.1", "--dir", dir,
		"--save", "", "--appendonly", "no", "--logfile", os.DevNull)
	if err := cmd.Start(); err != nil {
		return err
	}
	fmt.Println("started")
	untilParentEnds()
	err = cmd.Process.Kill()
	_ = cmd.Wait()
	return err
}

// A database is the Redis of the run, at an address that stays the same.
type database struct {
	addr    string
	foreign bool
	process *process
}

// openRedis starts a server, or uses the one at addr.
func openRedis(addr string) (*database, error) {
	if addr != "" {
		d := &database{addr: addr, foreign: true}
		return d, d.answers()
	}
	if _, err := exec.LookPath("redis-server"); err != nil {
		return nil, errNoRedis
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	d := &database{addr: l.Addr().String()}
	if err := l.Close(); err != nil {
		return nil, err
	}
	return d, d.start()
}

func (d *database) start() error {
	_, port, err := net.SplitHostPort(d.addr)
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		return err
	}
	if d.process, _, err = start("redis", redisOrders{n}); err != nil {
		return err
	}
	return d.answers()
}

// answers waits until Redis answers.
func (d *database) answers() error {
	client := redis.NewClient(&redis.Options{Addr: d.addr, MaxRetries: -1})
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for {
		err := client.Ping(ctx).Err()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("redis at %s: %w", d.addr, err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// kill ends a server of our own, with all that it knew.
func (d *database) kill() {
	if d.process != nil {
		d.process.stop(new(sync.WaitGroup))
		d.process = nil
	}
}
