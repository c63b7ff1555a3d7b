package world

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// mix spreads numbers over 64 bits (the finalizer of SplitMix64).
func mix(a, b uint64) uint64 {
	x := a ^ b*0x9e3779b97f4a7c15
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// hash is the FNV-1a hash of some strings.
func hash(parts ...string) uint64 {
	h := uint64(14695981039346656037)
	for _, s := range parts {
		for i := range len(s) {
			h = (h ^ uint64(s[i])) * 1099511628211
		}
		h = (h ^ 0xff) * 1099511628211
	}
	return h
}

// now is the virtual time in nanoseconds.
func now() uint64 { return uint64(time.Now().UnixNano()) }

// dice is a source for one goroutine.
func dice(seed uint64, purpose ...string) *rand.Rand {
	return rand.New(rand.NewPCG(seed, hash(purpose...)))
}

// source gives a client its jitter and its ids. Two goroutines that draw at the
// same instant must not make a world depend on which comes first: the low 53
// bits, which make a fraction, depend on the instant alone, and the bits above,
// which keep ids apart, are a count.
type source struct {
	seed uint64
	n    atomic.Uint64
}

// Uint64 implements rand.Source.
func (s *source) Uint64() uint64 {
	return mix(s.seed, now())&(1<<53-1) | s.n.Add(1)<<53
}

// chance is true with probability p.
func chance(r *rand.Rand, p float64) bool { return r.Float64() < p }

// between draws a duration from least to most.
func between(r *rand.Rand, least, most time.Duration) time.Duration {
	if most <= least {
		return least
	}
	return least + time.Duration(r.Int64N(int64(most-least)))
}

// about draws a duration with an exponential distribution, at most eight times
// the mean.
func about(r *rand.Rand, mean time.Duration) time.Duration {
	return time.Duration(min(r.ExpFloat64(), 8) * float64(mean))
}

// site tells apart from where in the program a call came, skipping some frames:
// what two goroutines do at one instant is told apart by it.
func site(skip int) uint64 {
	var from [10]uintptr
	runtime.Callers(skip, from[:])
	if h, known := sites.Load(from); known {
		return h.(uint64)
	}
	h := uint64(0)
	frames := runtime.CallersFrames(from[:])
	for {
		f, more := frames.Next()
		h = mix(h^uint64(f.Line), hash(f.Function))
		if !more {
			break
		}
	}
	sites.Store(from, h)
	return h
}

// sites caches site.
var sites sync.Map
