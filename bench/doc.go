// Package bench holds benchmarks against floors that are measured in the same
// run, so that a figure means the same on every machine. Run `make bench`.
package bench
