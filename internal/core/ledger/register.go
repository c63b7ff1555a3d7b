package ledger

import (
	"fmt"
	"math"
	"time"

	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/store"
)

// Register decides about an agent's lease where one process is the coordinator, and
// its own clock the only one (EX1). On a store that is a named lease, whose token is
// the epoch. Times are milliseconds of the coordinator's clock.
type Register struct {
	epoch   uint64
	holder  string
	expires int64
}

// NewRegister is a register that nobody holds. seed is the highest epoch that was
// ever given out: Agent.Seed or Head.Seed where the counter was lost (EX2), else 0.
func NewRegister(seed uint64) *Register { return &Register{epoch: seed} }

// HeldError says who holds a register, lapsed or not.
type HeldError struct {
	Holder string
	Epoch  uint64
	// ExpiresMS is when others may acquire.
	ExpiresMS int64
}

// Error names holder and epoch.
func (e *HeldError) Error() string { return fmt.Sprintf("held by %q at epoch %d", e.Holder, e.Epoch) }

// LostError says that a claim is not the current one.
type LostError struct {
	Claimed, Current Lease
}

// Error names both.
func (e *LostError) Error() string {
	return fmt.Sprintf("lost: epoch %d of %q is not current, epoch %d of %q is", e.Claimed.Epoch, e.Claimed.Holder, e.Current.Epoch, e.Current.Holder)
}

// Acquire grants the register if nobody holds it or its holder lapsed: epoch + 1
// each time. A live one is a *HeldError, also for its own holder (EX1).
func (r *Register) Acquire(holder string, nowMS int64, ttl time.Duration) (Lease, error) {
	if err := lease.CheckTTL(ttl); err != nil {
		return Lease{}, err
	}
	if err := store.CheckName("holder", holder); err != nil {
		return Lease{}, err
	}
	if r.holder != "" && nowMS < r.expires {
		return Lease{}, &HeldError{r.holder, r.epoch, r.expires}
	}
	r.epoch++
	r.holder = holder
	r.extend(nowMS, ttl)
	return Lease{Holder: holder, Epoch: r.epoch}, nil
}

// extend saturates: a clock at its end must not make a lease lapse at once.
func (r *Register) extend(nowMS int64, ttl time.Duration) {
	r.expires = math.MaxInt64
	if ms := ttl.Milliseconds(); nowMS <= math.MaxInt64-ms {
		r.expires = nowMS + ms
	}
}

// Renew extends the register for its exact holder and epoch, also after a lapse that
// nobody used; the epoch stays. It is the heartbeat of a long run (EX1).
func (r *Register) Renew(l Lease, nowMS int64, ttl time.Duration) error {
	if err := lease.CheckTTL(ttl); err != nil {
		return err
	}
	if l != r.Current() || r.holder == "" {
		return &LostError{l, r.Current()}
	}
	r.extend(nowMS, ttl)
	return nil
}

// Release frees the register of its exact holder and epoch; the epoch is kept, so
// that it never comes again (EX1).
func (r *Register) Release(l Lease) error {
	if l != r.Current() || r.holder == "" {
		return &LostError{l, r.Current()}
	}
	r.holder = ""
	return nil
}

// Current is who holds the register, lapsed or not; the zero value if nobody does
// (EX1).
func (r *Register) Current() Lease {
	if r.holder == "" {
		return Lease{}
	}
	return Lease{Holder: r.holder, Epoch: r.epoch}
}
