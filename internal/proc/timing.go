package proc

import "time"

// DefaultReserve is the time kept for a tree to be gone after KILL: a fifteenth
// of the TTL, at most 500 ms (DL5). With the default grace it still fits beside
// the renewals of a TTL.
func DefaultReserve(ttl time.Duration) time.Duration { return min(ttl/15, 500*time.Millisecond) }

// StopTime is the time that a tree needs to end: grace and reserve. It is what
// to take off the hold (DL5).
func StopTime(grace, reserve time.Duration) time.Duration { return grace + reserve }
