//go:build race

package schedule_test

// everyZone is one in how many zones is walked: the detector makes a walk slow, and nothing
// happens at once in it.
const everyZone = 12
