//go:build !unix

package main

// runWork is used by tests of systems with signals only.
func runWork([]string) int { return 99 }
