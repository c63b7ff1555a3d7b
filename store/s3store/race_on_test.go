//go:build race

package s3store

const raceEnabled = true
