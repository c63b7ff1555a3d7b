//go:build !linux

// Package bootid names what a boot-clock reading belongs to: this boot of this
// kernel, and the time namespace, which may shift the clock.
package bootid

// Boot is the kernel's id of this boot; this system has none that is exact, so
// nothing that rests on it outlives a process here.
func Boot() string { return "" }

// TimeNamespace names the process's time namespace; there are none here.
func TimeNamespace() string { return "" }
