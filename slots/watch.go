package slots

import (
	"context"
	"slices"

	core "github.com/tenure-project/tenure/internal/core/slots"
	"github.com/tenure-project/tenure/internal/settle"
	"github.com/tenure-project/tenure/store"
)

var _ RouteSource = (*Table)(nil)

// Routes reads who owns what: a [Table] is what a [Router] learns from. Whether an owner
// lives nobody can tell from the table; the owner itself can.
func (t *Table) Routes(ctx context.Context) ([]Route, error) {
	l, err := t.readAll(ctx)
	if err != nil {
		return nil, err
	}
	return routesOf(l.table), nil
}

func routesOf(t *core.Table) []Route {
	var all []Route
	for i := range t.Rows {
		if r := &t.Rows[i]; r.Held() {
			all = append(all, Route{Range: r.Range, Owner: r.Host.Owner, Addr: r.Host.Addr, Epoch: r.Epoch})
		}
	}
	return all
}

// Watch calls changed at once, and then whenever ranges changed hands, until ctx ends; it
// may call it too often. Where each row is kept by itself it watches the counter, which
// every new owner raises. A release, and a restart under the same epoch, change their row
// alone, so that ranges do not wait for each other, and are not told: whoever must know of
// them reads now and then, as a [Router] does.
// Where the store cannot watch, it polls as often as the client does. It returns the
// store's error if that is not one that passes.
func (t *Table) Watch(ctx context.Context, changed func()) error {
	w := settle.Waiting{Clock: t.k.Clock, Most: t.k.Timing.TTL, Poll: t.k.Poll, Rand: t.k.Rand, Log: t.k.Log}
	ver, routes := store.Version(""), []Route(nil)
	for ctx.Err() == nil {
		l, fell, err := t.head(ctx)
		switch {
		case fell != nil:
			return fell
		case err != nil && (ctx.Err() != nil || retryable(err)):
			t.pause(ctx, t.k.Poll)
			continue
		case err != nil:
			return err
		}
		now := routesOf(l.table)
		if ver == "" || l.ver != ver && (t.form == core.RowsForm || !slices.Equal(now, routes)) {
			changed()
		}
		ver, routes = l.ver, now
		settle.Change(ctx, t.k.Store, t.tableKey, ver, w)
	}
	return nil
}
