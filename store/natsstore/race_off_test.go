//go:build !race

package natsstore

// underRace says that the race detector watches.
const underRace = false
