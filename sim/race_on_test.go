//go:build race

package sim

// raceDetector: the detector shuffles the scheduler on purpose.
const raceDetector = true
