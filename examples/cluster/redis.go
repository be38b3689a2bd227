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

// redisOrders say where the server should listen.
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
	relay   *relay // to a Redis of the user, which is cut off and not killed
	process *process
}

// openRedis starts a server, or a relay to the one at addr.
func openRedis(addr string) (*database, error) {
	if addr != "" {
		if err := answers(addr, 2*time.Second); err != nil {
			return nil, err
		}
		d := &database{relay: &relay{to: addr}}
		err := d.relay.open()
		d.addr = d.relay.addr
		return d, err
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

// start starts the server, or passes connections on to it again.
func (d *database) start() error {
	if d.relay != nil {
		return d.relay.open()
	}
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
	return answers(d.addr, 10*time.Second)
}

// kill ends our own server, with all its data, or cuts off that of the user.
func (d *database) kill() error {
	d.close()
	return nil
}

func (d *database) close() {
	if d.relay != nil {
		d.relay.cut()
	}
	if d.process != nil {
		d.process.stop(new(sync.WaitGroup))
		d.process = nil
	}
}

// lost returns the name of the phase without Redis, and a sentence about it.
func (d *database) lost() (phase, story string) {
	if d.relay != nil {
		return "redis cut off", "Redis is cut off: whoever asks it is refused a connection"
	}
	return "redis killed", "Redis is killed, and what it knew is lost"
}

// answers waits until a Redis answers.
func answers(addr string, patience time.Duration) error {
	client := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, DialerRetries: 1})
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		err := client.Ping(ctx).Err()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("redis at %s: %w", addr, err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}
