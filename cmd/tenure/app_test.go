package main

import (
	"context"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
)

// The first signal ends a command's context, and the exit code is what shells
// give. It runs before the parallel tests, whose commands would hear the signal
// as well.
//
// SPEC UI1
func TestSignalEndsACommand(t *testing.T) {
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for sig, want := range map[os.Signal]int{syscall.SIGTERM: 143, os.Interrupt: 130} {
		ctx, stop := signalled(context.Background())
		if err := self.Signal(sig); err != nil {
			t.Fatal(err)
		}
		<-ctx.Done()
		err := error(&endedError{cause: context.Cause(ctx), err: errors.New("the call was cancelled")})
		if got := exitCode(err); got != want || !strings.HasPrefix(err.Error(), "stopped by signal: ") {
			t.Errorf("%v: exit code %d, want %d", err, got, want)
		}
		stop()
	}
	if ctx, stop := signalled(context.Background()); true {
		stop()
		var s *signalError
		if errors.As(context.Cause(ctx), &s) {
			t.Error("a context that ended by itself says that a signal ended it")
		}
	}
}

// A child is led to the same store and namespace, whichever way they were named,
// and keeps the rest of its environment.
//
// SPEC UI1 UI4
func TestChildFindsTheSameStore(t *testing.T) {
	t.Parallel()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ store, namespace, env, wantStore, wantNamespace string }{
		{"file:///x?namespace=a%2Fb", "", "", "file:///x", "a/b"},
		{"file:///x?network=allow&namespace=a", "", "b", "file:///x?network=allow", "a"},
		{"sqlite:a%20b.db", "c", "b", "sqlite://" + here + "/a%20b.db", "c"},
		{"mem:", "", "", "mem:", "default"},
		{"etcd://app@h1,h2/x", "", "", "etcd://app@h1,h2/x", "default"},
		{"etcd://app:hunter2@h/x", "", "", "etcd://app@h/x", "default"},
		{"postgres://app@h/d?password=hunter2&schema=s", "", "", "postgres://app@h/d?schema=s", "default"},
	} {
		a := newApp(strings.NewReader(""), discard{}, discard{}, []string{"PATH=/bin", "TENURE_NAMESPACE=" + c.env, "TENURE_STORE=mem:", "TENURE_LEASE=old"})
		a.flags.store, a.flags.namespace = c.store, c.namespace
		target, err := a.target()
		if err != nil {
			t.Fatal(err)
		}
		pairs, err := target.pairs(a.env)
		if err != nil {
			t.Fatal(err)
		}
		child := newEnvironment(a.env.with(append(pairs, envLease, "job")...))
		for name, want := range map[string]string{envStore: c.wantStore, envNamespace: c.wantNamespace, envLease: "job", "PATH": "/bin"} {
			if got := child.get(name); got != want {
				t.Errorf("%+v: the child finds %s=%q, want %q", c, name, got, want)
			}
		}
		if len(child.list) != 4 {
			t.Errorf("the child's environment is %q", child.list)
		}
	}
}
