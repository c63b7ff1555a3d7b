package slots

import (
	"context"
	"slices"
	"sync"

	"github.com/tenure-project/tenure/internal/clock"
	core "github.com/tenure-project/tenure/internal/core/slots"
	"github.com/tenure-project/tenure/internal/settle"
	"github.com/tenure-project/tenure/store"
)

// mostWatched bounds the rows that one host watches at the same time.
const mostWatched = 32

// lookout watches what is in the way of a host's claims, and makes the host look as soon as
// it changes hands. What it misses is found at the next refresh.
type lookout struct {
	h       *Host
	watched map[*part]context.CancelFunc
	all     sync.WaitGroup
}

// post begins and ends watches, so that each part that waits has one, up to a bound; where
// the table is one record, there is one for all.
func (o *lookout) post(ctx context.Context) {
	o.h.mu.Lock()
	defer o.h.mu.Unlock()
	waits := map[*part]bool{}
	for _, p := range o.h.parts {
		if p.grant == nil && len(p.rivals) > 0 && (o.h.form == core.RowsForm || len(waits) == 0) && len(waits) < mostWatched {
			waits[p] = true
		}
	}
	for p, end := range o.watched {
		if !waits[p] {
			end()
			delete(o.watched, p)
		}
	}
	for p := range waits {
		if o.watched[p] != nil {
			continue
		}
		watch, end := context.WithCancel(ctx)
		o.watched[p] = end
		o.all.Go(func() { o.h.lookOut(watch, p) })
	}
}

// end ends all watches and waits for that.
func (o *lookout) end() {
	for _, end := range o.watched {
		end()
	}
	clear(o.watched)
	o.all.Wait()
}

// lookOut watches what is in the way of p until ctx ends.
func (h *Host) lookOut(ctx context.Context, p *part) {
	w := settle.Waiting{Clock: h.k.Clock, Most: h.ttl, Poll: h.k.Poll, Rand: h.k.Rand, Log: h.log}
	for ctx.Err() == nil {
		key, ver, err := h.lookAt(ctx, p)
		looked := h.boot()
		if key == "" {
			return
		}
		rest := h.limit / 512
		if h.form == core.RegisterForm {
			rest = h.limit / 32 // many hosts renew in it, so it changes all the time
		}
		if err != nil {
			rest = h.every
		} else {
			settle.Change(ctx, h.k.Store, key, ver, w)
		}
		if !clock.Sleep(h.k.Clock, looked+rest-h.boot(), ctx.Done()) {
			return
		}
	}
}

// rivalOf is the first row in the way of p.
func (h *Host) rivalOf(p *part) (core.Row, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(p.rivals) == 0 {
		return core.Row{}, false
	}
	return p.rivals[0], true
}

// lookAt looks at what is in the way of p, and marks what changed hands: p, and where the
// table is one record any other part. A sign of life is no change.
func (h *Host) lookAt(ctx context.Context, p *part) (key string, v store.Version, err error) {
	rival, ok := h.rivalOf(p)
	if !ok {
		return "", "", nil
	}
	if h.form == core.RegisterForm {
		l, err := h.mustHead(ctx)
		if err == nil {
			h.mark(func(q *part) bool {
				return slices.ContainsFunc(q.rivals, func(r core.Row) bool { return !sameTenure(l.table.RowAt(r.Range), &r) })
			})
		}
		return h.tableKey, l.ver, err
	}
	now, v, err := h.readRow(ctx, rival.Range.A)
	if err == nil && !sameTenure(now, &rival) {
		h.mark(func(q *part) bool { return q == p })
	}
	return h.rowKey(rival.Range.A), v, err
}

// mark makes the host look at the parts that changed.
func (h *Host) mark(changed func(p *part) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.parts {
		if p.grant == nil && changed(p) {
			p.due = true
			h.ring()
		}
	}
}

// sameTenure reports whether now is the ownership, or the vacancy, that before was.
func sameTenure(now, before *core.Row) bool {
	return now != nil && now.Range == before.Range && now.Epoch == before.Epoch && now.Held() == before.Held() && (!now.Held() || now.Host.Is(before.Host))
}
