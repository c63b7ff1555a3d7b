package slots

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/tenure-project/tenure/store"
)

// slotDrains counts the requests of each slot, and knows the epochs under which no more
// may begin. A request first counts itself and then looks for the mark; Drain first
// sets the mark and then looks at the count: one of the two sees the other.
type slotDrains struct {
	running [Count]atomic.Int32
	stopped [Count]atomic.Uint64 // up to and with this epoch

	waiting atomic.Int32 // calls of drain
	mu      sync.Mutex
	ended   chan struct{} // closed when a slot's last request ends
}

// begin reports whether a request may begin; if so, end must follow.
func (d *slotDrains) begin(slot uint16, epoch uint64) bool {
	d.running[slot].Add(1)
	if epoch > d.stopped[slot].Load() {
		return true
	}
	d.end(slot)
	return false
}

func (d *slotDrains) end(slot uint16) {
	if d.running[slot].Add(-1) > 0 || d.waiting.Load() == 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended != nil {
		close(d.ended)
		d.ended = nil
	}
}

// drain stops the slots and waits for their requests.
func (d *slotDrains) drain(ctx context.Context, r Range, epoch uint64) error {
	for s := int(r.A); s <= int(r.B); s++ {
		d.stopped[s].Store(epoch)
	}
	d.waiting.Add(1)
	defer d.waiting.Add(-1)
	for {
		ended := d.signal()
		if !d.busy(r) {
			return nil
		}
		select {
		case <-ended:
		case <-ctx.Done():
			return store.CtxErr(ctx, "", "drain", r.String())
		}
	}
}

// signal is closed at the next end of a slot's last request. It must be taken before
// the counts are looked at.
func (d *slotDrains) signal() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended == nil {
		d.ended = make(chan struct{})
	}
	return d.ended
}

func (d *slotDrains) busy(r Range) bool {
	for s := int(r.A); s <= int(r.B); s++ {
		if d.running[s].Load() > 0 {
			return true
		}
	}
	return false
}

func (d *slotDrains) resume(r Range) {
	for s := int(r.A); s <= int(r.B); s++ {
		d.stopped[s].Store(0)
	}
}
