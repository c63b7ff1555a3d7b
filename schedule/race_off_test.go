//go:build !race

package schedule_test

// everyZone is one in how many zones is walked.
const everyZone = 1
