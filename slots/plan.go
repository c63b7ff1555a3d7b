package slots

import (
	"context"
	"errors"
	"slices"

	core "github.com/tenure-project/tenure/internal/core/slots"
	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/internal/settle"
	"github.com/tenure-project/tenure/store"
)

func sorted(shards []core.Shard) []core.Shard {
	return slices.SortedFunc(slices.Values(shards), func(a, b core.Shard) int { return int(a.Range.A) - int(b.Range.A) })
}

// readPlan reads the plan; nil if there is none. A plan of a former table is none.
func (f *files) readPlan(ctx context.Context) (*core.Plan, store.Version, error) {
	o, err := f.get(ctx, f.planKey, core.MaxPlan)
	if errors.Is(err, store.ErrNotFound) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", err
	}
	p, err := core.DecodePlan(f.planKey, f.name, o.Body)
	if err == nil && p.Birth != f.birth {
		return nil, "", store.Errorf(store.ErrCorrupt, f.identity(), "read plan", f.planKey, "the plan is of a table born as %s, this one was born as %s", p.Birth, f.birth)
	}
	return p, o.Version, err
}

// writePlan writes a plan over the version of the one that it follows.
func (f *files) writePlan(ctx context.Context, p *core.Plan, over store.Version) (store.Version, error) {
	body, err := p.Encode()
	if err != nil {
		return "", err
	}
	res, err := settle.Do(ctx, f.k.Store, settle.Write{Key: f.planKey, Body: body, Over: over, Limit: core.MaxPlan, Mine: func(b []byte) bool {
		now, err := core.DecodePlan(f.planKey, f.name, b)
		return err == nil && now.Attempt == p.Attempt
	}}, f.pace())
	return res.Version, err
}

// firstPlan writes the shards of a new table, unless it has these.
func (f *files) firstPlan(ctx context.Context, t *core.Table, shards []core.Shard) error {
	shards = sorted(shards)
	for {
		p, _, err := f.readPlan(ctx)
		if err != nil {
			return err
		}
		if p != nil {
			if same := func(a, b core.Shard) bool { return a.Range == b.Range }; !slices.EqualFunc(p.Shards, shards, same) {
				return store.Errorf(store.ErrExists, f.identity(), "create table", f.planKey, "table %q has a plan of other shards (%d of them)", f.name, len(p.Shards))
			}
			return nil
		}
		p = &core.Plan{V: record.Level, Table: f.name, Birth: t.Birth, Seq: 1, Shards: shards, Attempt: f.k.NewID()}
		if _, err := f.writePlan(ctx, p, ""); !settle.LostRace(err) {
			return err
		}
	}
}

// Plan reads which owner each shard is meant for (SL8); nil if the table has no plan.
func (t *Table) Plan(ctx context.Context) (*Plan, error) {
	p, _, err := t.readPlan(ctx)
	return p, err
}

// Pin says that only owner shall serve the shard r, whatever the balancer would choose; an
// empty owner takes the pin away (SL8). A range that is no shard is ErrInvalid, a table
// without a plan ErrNotFound.
func (t *Table) Pin(ctx context.Context, r Range, owner string) (*Plan, error) {
	ctx, cancel := settle.Limit(ctx, t.k.Clock, 2*t.k.Timing.TTL)
	defer cancel()
	for {
		p, ver, err := t.readPlan(ctx)
		if err != nil {
			return nil, err
		}
		if p == nil {
			return nil, store.Errorf(store.ErrNotFound, t.identity(), "pin", t.planKey, "table %q has no plan: make the table with shards", t.name)
		}
		if s := p.ShardOf(r.A); s != nil && s.Range == r && s.Pin == owner {
			return p, nil
		}
		next, err := p.Pin(r, owner, t.k.NewID())
		if err != nil {
			return nil, err
		}
		if _, err := t.writePlan(ctx, next, ver); !settle.LostRace(err) {
			return next, err
		}
		if !t.pause(ctx, t.pace().Backoff) {
			return nil, store.CtxErr(ctx, t.identity(), "pin", t.planKey)
		}
	}
}
