package agent

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/internal/bootid"
)

// A process of another user gets no answer, even where the folder lets it in. Only
// root can take another user's place for that; others check that their own is taken.
//
// SPEC UI1
func TestOtherUserIsRefused(t *testing.T) {
	t.Parallel()
	h := newHost(t, 10*time.Second)
	if os.Geteuid() != 0 {
		r := h.raw()
		r.say(`{"op":"hello","v":1}`)
		r.hear(opHello)
		return
	}
	dir := filepath.Dir(h.path)
	if err := errors.Join(os.Chmod(dir, 0o755), os.Chmod(h.path, 0o666)); err != nil {
		t.Fatal(err)
	}
	const nobody = 65534
	fds, errs := make(chan int, 1), make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlock it: the thread ends with the goroutine
		if _, _, e := syscall.RawSyscall(unix.SYS_SETRESUID, nobody, nobody, nobody); e != 0 {
			errs <- e
			return
		}
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			err = unix.Connect(fd, &unix.SockaddrUnix{Name: h.path})
		}
		if err != nil {
			errs <- err
			return
		}
		fds <- fd
	}()
	select {
	case err := <-errs:
		t.Fatal(err)
	case fd := <-fds:
		f := os.NewFile(uintptr(fd), "socket")
		c, err := net.FileConn(f)
		_ = f.Close()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, _ = io.WriteString(c, "{\"op\":\"hello\",\"v\":1}\n")
		_ = c.SetReadDeadline(time.Now().Add(patience))
		if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("it is answered: %d bytes, %v", n, err)
		}
	}
}

// Where the kernel shows that a supervisor is gone and the control group of its run
// empty, its lease is free at once, long before the deadline that was told. While
// anything is in the group it is not.
//
// SPEC LS14
func TestProvenGone(t *testing.T) {
	t.Parallel()
	h := newHost(t, 5*time.Minute)
	group := filepath.Join(socketDir(t), "group")
	if err := os.Mkdir(group, 0o700); err != nil {
		t.Fatal(err)
	}
	populated := func(n int) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(group, "cgroup.events"), fmt.Appendf(nil, "populated %d\nfrozen 0\n", n), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var own, parent unix.Stat_t
	if err := errors.Join(unix.Lstat(group, &own), unix.Lstat(filepath.Dir(group), &parent)); err != nil {
		t.Fatal(err)
	}
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), "AGENT_TEST_CLIENT="+h.path,
		fmt.Sprintf("AGENT_TEST_GROUP=cgroup2 %s %d %d %d %s", bootid.Boot(), own.Dev, parent.Ino, own.Ino, group))
	out, err := c.StdoutPipe()
	if err == nil {
		_, err = c.StdinPipe()
	}
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Process.Kill() }()
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "held <nil>\n" {
		t.Fatalf("the client says %q (%v)", line, err)
	}
	populated(0) // the group proves nothing while its supervisor lives
	if st := h.srv.Status(); st.Leases != 1 || st.Lapsing != 0 {
		t.Errorf("the status is %+v", st)
	}
	populated(1)
	_ = c.Process.Kill()
	_ = c.Wait()
	for h.srv.Status().Lapsing == 0 {
		h.until(h.clk.Boot() + time.Millisecond)
	}
	h.until(h.clk.Boot() + 4*lookEvery)
	_, err = h.rival.TryAcquire(h.ctx(), "j")
	wantErr(t, err, tenure.ErrHeld)
	populated(0)
	began := h.clk.Boot()
	if _, err := h.rival.Acquire(h.ctx(), "j"); err != nil || h.clk.Boot()-began > time.Minute {
		t.Errorf("it was free after %v (%v)", h.clk.Boot()-began, err)
	}
}
