package proc

import "syscall"

// apartFromUs are the attributes of a helper: a process group of its own, by which it is
// told from what else this process starts.
func apartFromUs() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
