package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spillway-go/spillway/lab/overload"
)

// A database is a PostgreSQL server with a separate data folder and control group. One goroutine may use it.
type database struct {
	bin, dir string
	as       account
	group    *overload.Cgroup
	master   *exec.Cmd
	ended    <-chan struct{}
	log      *os.File // output of initdb and the server
}

const (
	rowCount     = 60_000 // rows of the table; the aggregate reads all of them
	logName      = "log"
	startTimeout = 30 * time.Second
	stopTimeout  = 10 * time.Second
)

// openDatabase installs PostgreSQL if necessary, starts it and fills its table. An error that is errSkip says why this
// machine cannot run it.
func openDatabase(ctx context.Context, quota float64) (*database, error) {
	bin, err := programs(ctx)
	if err != nil {
		return nil, err
	}
	d := &database{bin: bin}
	if d.group, err = overload.NewCgroup("spillway-postgres", quota); err != nil {
		return nil, fmt.Errorf("%w: no control group can be made: %w", errSkip, err)
	}
	if err := d.open(ctx); err != nil {
		text, _ := os.ReadFile(filepath.Join(d.dir, logName)) // whatever there is
		d.close()
		return nil, fmt.Errorf("database: %w\n%s", err, text)
	}
	return d, nil
}

func (d *database) open(ctx context.Context) (err error) {
	if d.as, err = databaseAccount(); err != nil {
		return err
	}
	if d.dir, err = os.MkdirTemp("", "spillway-postgres-"); err != nil {
		return err
	}
	if d.as != (account{}) {
		if err := os.Chown(d.dir, int(d.as.uid), int(d.as.gid)); err != nil {
			return err
		}
	}
	if d.log, err = os.Create(filepath.Join(d.dir, logName)); err != nil {
		return err
	}
	initdb := exec.CommandContext(ctx, filepath.Join(d.bin, "initdb"), "-D", d.data(), "-U", "postgres", "-A", "trust",
		"-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions")
	own(initdb, d.as)
	initdb.Dir, initdb.Stdout, initdb.Stderr = d.dir, d.log, d.log
	ended, err := keep(initdb)
	if err != nil {
		return err
	}
	<-ended
	if !initdb.ProcessState.Success() {
		return fmt.Errorf("initdb: %v", initdb.ProcessState)
	}
	if err := d.start(ctx); err != nil {
		return err
	}
	return d.fill(ctx)
}

func (d *database) data() string { return filepath.Join(d.dir, "data") }

// url is where the server listens: a socket in a folder that only its own account and root can enter.
func (d *database) url() string { return "host=" + d.dir + " user=postgres dbname=postgres" }

// start starts the server in its group and waits until it answers.
func (d *database) start(ctx context.Context) error {
	args := []string{"-D", d.data(), "-k", d.dir}
	for _, setting := range []string{
		"listen_addresses=", "max_connections=50", "shared_buffers=64MB", "fsync=off", "autovacuum=off", "jit=off",
		"max_parallel_workers_per_gather=0", "logging_collector=off", "log_min_messages=fatal",
	} {
		args = append(args, "-c", setting)
	}
	// The shell waits until it is in the group, and then becomes the server: every process of the server is born there.
	script := []string{"-c", `read -r go && exec "$@"`, "sh", filepath.Join(d.bin, "postgres")}
	d.master = exec.Command("/bin/sh", append(script, args...)...)
	own(d.master, d.as)
	d.master.Dir, d.master.Stdout, d.master.Stderr = d.dir, d.log, d.log
	stdin, err := d.master.StdinPipe()
	if err != nil {
		return err
	}
	if d.ended, err = keep(d.master); err != nil {
		d.master = nil
		return err
	}
	if err := d.group.Add(d.master.Process.Pid); err != nil {
		return fmt.Errorf("%w: control group: %w", errSkip, err)
	}
	if _, err := stdin.Write([]byte("go\n")); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return d.answers(ctx, "select 1")
}

// answers waits until a new session gets an answer to query.
func (d *database) answers(ctx context.Context, query string) error {
	for {
		err := d.exec(ctx, query)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("no answer: %w", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// exec runs a statement in a separate session.
func (d *database) exec(ctx context.Context, query string) error {
	c, err := pgx.Connect(ctx, d.url())
	if err != nil {
		return err
	}
	defer c.Close(context.WithoutCancel(ctx))
	_, err = c.Exec(ctx, query)
	return err
}

// fill makes the one table that all routes read, always with the same content.
func (d *database) fill(ctx context.Context) error {
	err := d.exec(ctx, fmt.Sprintf(`
		create table orders (id int primary key, customer int not null, kind text not null, amount numeric(10, 2) not null, note text not null);
		insert into orders select i, i * 7919 %% 1000, 'kind ' || i %% 20, (i * 31 %% 10007) / 100.0, repeat(md5(i::text), 3)
			from generate_series(1, %d) i`, rowCount))
	if err != nil {
		return err
	}
	return d.exec(ctx, "vacuum analyze orders")
}

// rest waits until no session of an app is left, so that one cell does not spoil the next.
func (d *database) rest(ctx context.Context) error {
	const others = `do $$ begin
		if exists (select from pg_stat_activity where backend_type = 'client backend' and pid <> pg_backend_pid()) then raise 'busy'; end if;
	end $$`
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return d.answers(ctx, others)
}

// signal signals each process of the server, the postmaster first, so that no process starts meanwhile.
func (d *database) signal(sig syscall.Signal) error {
	if err := tell(d.master.Process.Pid, sig); err != nil {
		return err
	}
	pids, err := d.group.Processes()
	if err != nil {
		return err
	}
	for _, pid := range pids {
		if err := tell(pid, sig); err != nil {
			return err
		}
	}
	return nil
}

// stop ends the server and waits for it.
func (d *database) stop(sig syscall.Signal) error {
	if d.master == nil {
		return nil
	}
	err := tell(d.master.Process.Pid, sig)
	select {
	case <-d.ended:
	case <-time.After(stopTimeout):
		err = errors.Join(err, errors.New("the server did not end"), d.signal(sigKill))
		<-d.ended
	}
	d.master = nil
	return err
}

func (d *database) restart(ctx context.Context) error {
	if err := d.stop(sigFast); err != nil {
		return err
	}
	return d.start(ctx)
}

// close ends the server, whatever its state, and removes its files.
func (d *database) close() {
	if d.master != nil {
		_ = d.signal(sigCont) // it may be stopped, and could not end
		_ = d.stop(sigQuit)
	}
	for range 100 { // sessions end by themselves after their postmaster
		pids, err := d.group.Processes()
		if err != nil || len(pids) == 0 {
			break
		}
		for _, pid := range pids {
			_ = tell(pid, sigKill)
		}
		time.Sleep(10 * time.Millisecond)
	}
	d.group.Remove()
	if d.log != nil {
		_ = d.log.Close()
	}
	if d.dir != "" {
		_ = os.RemoveAll(d.dir)
	}
}

// version returns the version of the server.
func (d *database) version(ctx context.Context) string {
	c, err := pgx.Connect(ctx, d.url())
	if err != nil {
		return "of unknown version"
	}
	defer c.Close(context.WithoutCancel(ctx))
	return c.PgConn().ParameterStatus("server_version")
}
