//go:build race

package membership

// everyNth write of a story fails in turn; under the race detector, fewer do.
const everyNth = 4
