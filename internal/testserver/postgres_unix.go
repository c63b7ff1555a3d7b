//go:build unix

package testserver

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// PostgreSQL is a private cluster.
type PostgreSQL struct {
	*Process
	// DSN is the URL of its database "postgres" as its superuser, over TCP on
	// loopback without a password.
	DSN string
	// Port is the TCP port on 127.0.0.1.
	Port int
	// Data is the cluster's folder, Bin the folder of the server's programs.
	Data, Bin string

	dir  string
	args []string
}

// StartPostgreSQL makes a cluster in a temporary folder and starts it, with
// each setting ("name=value") on its command line. As root it runs as user
// postgres or nobody, for the server refuses root. Stop it with Remove.
func StartPostgreSQL(settings ...string) (*PostgreSQL, error) {
	bin, err := postgresBin()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "tenure-pg-")
	if err != nil {
		return nil, err
	}
	p := &PostgreSQL{Bin: bin, dir: dir, Data: filepath.Join(dir, "data")}
	for _, s := range settings {
		p.args = append(p.args, "-c", s)
	}
	if err := p.init(); err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	if err := p.Restart(); err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	return p, nil
}

func (p *PostgreSQL) init() error {
	if uid, gid, root := unprivileged(); root {
		if err := os.Chown(p.dir, int(uid), int(gid)); err != nil {
			return err
		}
	}
	var err error
	if p.Port, err = FreePort(); err != nil {
		return err
	}
	p.DSN = fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", p.Port)
	out, err := p.Command("initdb", "-D", p.Data, "-U", "postgres", "-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C").CombinedOutput()
	if err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	return nil
}

// Restart starts the server again on the same folder and port, after Stop.
func (p *PostgreSQL) Restart() error {
	args := append([]string{"-D", p.Data, "-p", strconv.Itoa(p.Port), "-c", "listen_addresses=127.0.0.1",
		"-c", "unix_socket_directories="}, p.args...)
	cmd := p.Command("postgres", args...)
	var err error
	p.Process, err = Start(cmd, p.ready, time.Minute)
	return err
}

// ready asks for a connection with the wire protocol's SSL question, which only
// a server that is up answers.
func (p *PostgreSQL) ready(ctx context.Context) error {
	out, err := p.Command("pg_isready", "-h", "127.0.0.1", "-p", strconv.Itoa(p.Port)).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", p.Port))
	if err != nil {
		return err
	}
	return c.Close()
}

// Command is one of the server's programs, run as the cluster's user.
func (p *PostgreSQL) Command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(p.Bin, name), args...)
	cmd.Dir = p.dir
	if uid, gid, root := unprivileged(); root {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: gid}}
	}
	return cmd
}

// Stop kills the server as a crash would: no checkpoint, connections cut. Its
// children end when they notice.
func (p *PostgreSQL) Stop() {
	_ = syscall.Kill(p.Pid(), syscall.SIGQUIT) // immediate shutdown: children go too
	<-p.done
}

// Remove stops the server and removes its folder.
func (p *PostgreSQL) Remove() {
	p.Stop()
	_ = os.RemoveAll(p.dir)
}

func postgresBin() (string, error) {
	if p, err := exec.LookPath("initdb"); err == nil {
		if real, err := filepath.EvalSymlinks(p); err == nil {
			if _, err := os.Stat(filepath.Join(filepath.Dir(real), "postgres")); err == nil {
				return filepath.Dir(real), nil
			}
		}
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(found) == 0 {
		return "", fmt.Errorf("%w (no initdb)", ErrMissing)
	}
	slices.Sort(found)
	return filepath.Dir(found[len(found)-1]), nil
}

// unprivileged is whom to run as, if this process is root.
func unprivileged() (uid, gid uint32, root bool) {
	if os.Getuid() != 0 {
		return 0, 0, false
	}
	for _, name := range []string{"postgres", "nobody"} {
		if u, err := user.Lookup(name); err == nil {
			uid, _ := strconv.ParseUint(u.Uid, 10, 32)
			gid, _ := strconv.ParseUint(u.Gid, 10, 32)
			return uint32(uid), uint32(gid), true
		}
	}
	return 65534, 65534, true
}
