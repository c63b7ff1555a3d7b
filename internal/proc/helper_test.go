//go:build linux

package proc

import (
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// playHelper is a command under test. Every helper ends by itself after a
// minute, whatever the test does.
func playHelper(args []string) int {
	time.AfterFunc(time.Minute, func() { os.Exit(99) })
	switch args[0] {
	case "argv":
		return helperArgv(args[1])
	case "stubborn":
		signal.Ignore(unix.SIGTERM, unix.SIGINT, unix.SIGQUIT, unix.SIGHUP)
		return helperWait(args[1])
	case "wait":
		return helperWait(args[1])
	case "count":
		return helperCount()
	case "daemon":
		return helperDaemon(args[1:])
	case "hydra":
		return helperHydra(args[1:])
	}
	return 98
}

// helperArgv writes argument vector and environment to a file.
func helperArgv(path string) int {
	body := strings.Join(os.Args, "\x00") + "\x01" + strings.Join(os.Environ(), "\x00")
	if err := os.WriteFile(path, []byte(body), 0o600); err != nil {
		return 97
	}
	return 0
}

// helperWait says that it is there, and stays.
func helperWait(path string) int {
	if path != "-" {
		if err := os.WriteFile(path, []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
			return 97
		}
	}
	select {}
}

// helperCount counts INT, QUIT and the like; USR1 makes it tell, USR2 ends it.
func helperCount() int {
	c := make(chan os.Signal, 64)
	signal.Notify(c, unix.SIGINT, unix.SIGQUIT, unix.SIGHUP, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2)
	fmt.Println("counting", os.Getpid())
	seen := map[os.Signal]int{}
	for s := range c {
		switch seen[s]++; s {
		case unix.SIGUSR1:
			fmt.Printf("seen INT=%d QUIT=%d HUP=%d TERM=%d USR1=%d\n",
				seen[unix.SIGINT], seen[unix.SIGQUIT], seen[unix.SIGHUP], seen[unix.SIGTERM], seen[s])
		case unix.SIGUSR2:
			return 0
		}
	}
	return 0
}

// helperDaemon starts a helper two generations down, each in a session of its
// own, and ends.
func helperDaemon(args []string) int {
	depth, _ := strconv.Atoi(args[0])
	next := append([]string{os.Args[0], "helper"}, args[1:]...)
	if depth > 0 {
		next = append([]string{os.Args[0], "helper", "daemon", strconv.Itoa(depth - 1)}, args[1:]...)
	}
	_, err := syscall.ForkExec("/proc/self/exe", next, &syscall.ProcAttr{
		Env: os.Environ(), Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return 97
	}
	return 0
}

// helperHydra starts two of its kind, each in a session of its own, and ends.
// The number of generations bounds it.
func helperHydra(args []string) int {
	signal.Ignore(unix.SIGTERM)
	left, _ := strconv.Atoi(args[0])
	if left == 0 {
		return 0
	}
	for range 2 {
		_, _ = syscall.ForkExec("/proc/self/exe", []string{os.Args[0], "helper", "hydra", strconv.Itoa(left - 1)}, &syscall.ProcAttr{
			Env: os.Environ(), Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setsid: true},
		})
	}
	return 0
}
