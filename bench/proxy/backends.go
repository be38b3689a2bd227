package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	lab "github.com/spillway-go/spillway/lab/overload"
)

// errSkip is why this machine cannot run a row.
var errSkip = errors.New("SKIPPED")

// quota is how many CPUs the backend "cpu" may use.
const quota = 0.1

// A backend is a service of its own processes.
type backend struct {
	*child
	behind *child // the process that answers clients, if it is another one
	group  *lab.Cgroup
	half   *lab.Cgroup
}

// startBackend starts the backend of the given name.
func startBackend(name, dir string) (*backend, error) {
	var (
		b   = new(backend)
		err error
	)
	switch name {
	case "pool":
		b.child, err = spawnSelf("pool")
	case "python":
		b.child, err = spawn("python3", "-c", python)
	case "php":
		return startPHP(dir)
	case "cpu":
		if b.group, err = lab.NewCgroup("spillway-proxy", quota); err != nil {
			return nil, fmt.Errorf("%w: no control group: %w", errSkip, err)
		}
		if b.half, err = lab.NewCgroup("spillway-proxy-half", quota/2); err != nil {
			b.group.Remove()
			return nil, fmt.Errorf("%w: no control group: %w", errSkip, err)
		}
		if b.child, err = spawnSelf("cpu"); err == nil {
			err = b.group.Add(b.cmd.Process.Pid)
		}
	default:
		err = fmt.Errorf("-backends: no backend %q", name)
	}
	if err != nil {
		b.end()
		return nil, err
	}
	return b, nil
}

// halve takes half of its CPU from the backend "cpu".
func (b *backend) halve() error { return b.half.Add(b.cmd.Process.Pid) }

func (b *backend) end() {
	b.child.end()
	b.behind.end()
	for _, g := range []*lab.Cgroup{b.group, b.half} {
		if g != nil {
			g.Remove()
		}
	}
}

// startPHP starts php-fpm with four workers, and nginx before it.
func startPHP(dir string) (*backend, error) {
	programs, err := filepath.Glob("/usr/sbin/php-fpm*")
	if err != nil || len(programs) == 0 {
		return nil, fmt.Errorf("%w: there is no php-fpm", errSkip)
	}
	files := map[string]string{
		"index.php": "<?php usleep(20000); echo 'ok';",
		"fpm.conf": fmt.Sprintf("[global]\nerror_log = %[1]s/fpm.log\ndaemonize = no\n[www]\nlisten = %[1]s/fpm.sock\nlisten.mode = 0666\n"+
			"listen.backlog = 1024\nuser = nobody\ngroup = nogroup\npm = static\npm.max_children = %[2]d\n", dir, workers),
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil { //nolint:gosec // nobody has to read it
			return nil, err
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // the same
		return nil, err
	}
	fpm := exec.CommandContext(context.Background(), slices.Max(programs), "-F", "-R", "-y", filepath.Join(dir, "fpm.conf"))
	if err := fpm.Start(); err != nil {
		return nil, err
	}
	b := &backend{behind: &child{cmd: fpm, master: true}}
	if err := waitFor("unix", filepath.Join(dir, "fpm.sock")); err != nil {
		b.end()
		return nil, err
	}
	b.child, err = startNginx(dir, "php", fmt.Sprintf("location / { fastcgi_pass unix:%[1]s/fpm.sock; fastcgi_param SCRIPT_FILENAME %[1]s/index.php;"+
		" fastcgi_param REQUEST_METHOD $request_method; fastcgi_param QUERY_STRING $query_string; }", dir), "")
	if err != nil {
		b.end()
		return nil, err
	}
	return b, nil
}

// startNginx starts nginx with one server. The zones stand outside it.
func startNginx(dir, name, server, zones string) (*child, error) {
	program, err := exec.LookPath("nginx")
	if err != nil {
		return nil, fmt.Errorf("%w: there is no nginx", errSkip)
	}
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, name+".conf")
	text := fmt.Sprintf("daemon off;\nworker_processes 1;\npid %[1]s/%[2]s.pid;\nerror_log %[1]s/%[2]s.log crit;\nevents { worker_connections 8192; }\n"+
		"http { access_log off; keepalive_requests 100000; client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy; fastcgi_temp_path %[1]s/fcgi;\n"+
		"uwsgi_temp_path %[1]s/uwsgi; scgi_temp_path %[1]s/scgi;\n%[5]s\nserver { listen %[3]s backlog=4096; %[4]s } }\n", dir, name, address, server, zones)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(context.Background(), program, "-c", file, "-p", dir)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &child{cmd: cmd, url: "http://" + address, master: true}
	if err := waitFor("tcp", address); err != nil {
		c.end()
		return nil, err
	}
	return c, nil
}

// freeAddress returns an address of the loopback on which nothing listens.
func freeAddress() (string, error) {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// waitFor waits until something listens.
func waitFor(network, address string) error {
	var err error
	for range 100 {
		var c net.Conn
		if c, err = new(net.Dialer).DialContext(context.Background(), network, address); err == nil {
			return c.Close()
		}
		time.Sleep(50 * time.Millisecond)
	}
	return err
}

// startGuard starts what stands before the backend, or returns nil for none. The names are none, spillwayd, spillwayd-slo (400 ms), limit_req:N (requests
// per second, with a burst of a tenth) and limit_conn:N (requests at a time).
func startGuard(guard, daemon, dir, to string) (*child, error) {
	kind, n, _ := strings.Cut(guard, ":")
	pass := "proxy_pass " + to + "; proxy_http_version 1.1; proxy_set_header Connection '';"
	switch kind {
	case "none":
		return nil, nil //nolint:nilnil // none is none
	case "spillwayd":
		address, err := freeAddress() // the same after a restart
		if err != nil {
			return nil, err
		}
		return spawn(daemon, "-to", to, "-listen", address, "-admin", "off")
	case "spillwayd-slo":
		file := filepath.Join(dir, "slo.yaml")
		text := fmt.Sprintf("listen: [{address: '127.0.0.1:0'}]\nadmin: {address: 'off'}\nbackend: {urls: [%s]}\nshedder: {slo: 400ms}\n", to)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return nil, err
		}
		return spawn(daemon, "-config", file)
	case "limit_req":
		return startNginx(dir, "guard", "location / { limit_req zone=all burst=20 nodelay; "+pass+" }",
			"limit_req_zone $scheme zone=all:1m rate="+n+"r/s;")
	case "limit_conn":
		return startNginx(dir, "guard", "location / { limit_conn all "+n+"; "+pass+" }", "limit_conn_zone $scheme zone=all:1m;")
	}
	return nil, fmt.Errorf("-guards: no guard %q", guard)
}

// signal returns what ends the process: a master has to end its workers.
func (c *child) signal() syscall.Signal {
	if c.master {
		return syscall.SIGTERM
	}
	return syscall.SIGKILL
}
