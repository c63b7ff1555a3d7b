// Package bench holds benchmarks against floors: the least work that the same
// thing cannot do without, measured in the same run and in turn with it, so that
// a ratio means the same on every machine and other load meets both sides. Run
// `make bench`; docs/benchmarks.md says what each figure means.
package bench
