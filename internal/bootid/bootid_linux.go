// Package bootid names what a boot-clock reading belongs to: this boot of this
// kernel, and the time namespace, which may shift the clock.
package bootid

import (
	"os"
	"strings"
)

// Boot is the kernel's random id of this boot, "" where there is none.
func Boot() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// TimeNamespace names the process's time namespace, "" where there is none.
func TimeNamespace() string {
	ns, err := os.Readlink("/proc/self/ns/time")
	if err != nil {
		return ""
	}
	return ns
}
