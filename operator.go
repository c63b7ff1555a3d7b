package tenure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/internal/settle"
	"github.com/tenure-project/tenure/store"
)

// ReleaseByProof releases the lease name for a holder that is known by its
// exact owner and token, from outside its process. Anything else there is
// ErrLost, and nothing is touched.
func (c *Client) ReleaseByProof(ctx context.Context, name string, token uint64, owner string) error {
	tried := false
	return c.change(ctx, name, func(r *lease.Record, attempt string) (*lease.Record, error) {
		if tried {
			is := func(t lease.Tenure) bool { return t.Owner.Incarnation == owner && t.How == lease.HowReleased }
			if ended, err := c.endedAs(ctx, name, r, token, is); ended || err != nil {
				return nil, cmp.Or(err, errNothingToDo) // our own write, whose answer was lost
			}
		}
		tried = true
		if r != nil && r.Held() && r.Kind == lease.Session && r.Token == token {
			return nil, store.Errorf(ErrInvalid, c.st.Info().Identity, "release", name, "the lease is held by the session of node %q, which alone releases it: steal it, or end the session", r.Owner.Node)
		}
		if r == nil || !r.Held() || r.Token != token || r.Owner.Incarnation != owner {
			return nil, fmt.Errorf("lease %q: owner %s, token %d: %w", name, owner, token, lostTo(r))
		}
		return r.End(attempt, lease.Ended{How: lease.HowReleased, At: c.nowMS()}), nil
	})
}

// StealOptions say who steals and why.
type StealOptions struct {
	// Token is the tenure that is meant to end; another one is not touched.
	Token uint64
	// Reason and By are kept in the history. Reason must not be empty.
	Reason, By string
	// Vouch says that the operator knows the holder to be gone: the next acquire
	// is then at once, and exclusivity rests on that word.
	Vouch bool
}

// Steal ends the tenure of one token whether or not its holder lives (LS11).
// The holder's next renewal fails. Unless vouched for, everyone then watches
// the record for the superseded TTL before the next acquire. The status after
// the steal is returned.
func (c *Client) Steal(ctx context.Context, name string, o StealOptions) (Status, error) {
	if o.Reason == "" {
		return Status{}, store.Errorf(ErrInvalid, "", "steal", name, "a reason is required: it is kept in the history")
	}
	if err := errors.Join(lease.CheckWhy("reason", o.Reason), lease.CheckWhy("operator", o.By)); err != nil {
		return Status{}, err
	}
	tried := false
	if err := c.change(ctx, name, func(r *lease.Record, attempt string) (*lease.Record, error) {
		if tried {
			is := func(t lease.Tenure) bool { return t.Why == o.Reason && t.By == o.By }
			if ended, err := c.endedAs(ctx, name, r, o.Token, is); ended || err != nil {
				return nil, cmp.Or(err, errNothingToDo) // our own write, whose answer was lost
			}
		}
		tried = true
		if r == nil {
			return nil, store.Errorf(ErrNotFound, c.st.Info().Identity, "steal", name, "the lease was never used")
		}
		told, err := c.tellSession(ctx, name, r, o)
		if err != nil {
			return nil, err
		}
		return r.Steal(attempt, lease.Theft{Token: o.Token, Vouch: o.Vouch, Told: told, Why: o.Reason, By: o.By, NowMS: c.nowMS()})
	}); err != nil {
		return Status{}, err
	}
	return c.Status(ctx, name)
}

// errNothingToDo leaves a record as it is.
var errNothingToDo = errors.New("nothing to do")

// change applies f to the record of name until the write sticks.
func (c *Client) change(ctx context.Context, name string, f func(r *lease.Record, attempt string) (*lease.Record, error)) error {
	if err := store.CheckName("lease name", name); err != nil {
		return err
	}
	t := c.timing.Defaults()
	ctx, cancel := settle.Limit(ctx, c.clk, 2*t.TTL)
	defer cancel()
	for {
		found, err := c.read(ctx, name, t.Attempt)
		if err != nil && !errors.Is(err, ErrRegressed) {
			return err
		}
		id := c.newID()
		next, err := f(found.rec, id)
		if errors.Is(err, errNothingToDo) {
			return nil
		}
		if err != nil {
			return err
		}
		body, err := next.Encode()
		if err != nil {
			return err
		}
		key := c.leaseKey(name)
		_, err = settle.Do(ctx, c.st, settle.Write{
			Key: key, Body: body, Over: found.ver, Limit: lease.MaxBody,
			Mine: func(b []byte) bool {
				r, err := lease.Decode(key, name, b)
				return err == nil && r.WriterAttempt == id
			},
		}, c.pace(t))
		if !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
}

// Jump raises the counter of the lease name to at least above, so that the next
// token is higher (LS12): after a restore, give more than the highest token that
// anything has seen. It gives nothing to anybody, and a holder keeps its lease.
// A name that was never used is ErrNotFound; use JumpAll.
func (c *Client) Jump(ctx context.Context, name string, above uint64) error {
	if err := checkJump(above); err != nil {
		return err
	}
	return c.change(ctx, name, func(r *lease.Record, attempt string) (*lease.Record, error) {
		if r == nil {
			return nil, store.Errorf(ErrNotFound, c.st.Info().Identity, "jump", name, "the lease was never used here: jump --all raises the floor for such names")
		}
		if next := r.Jump(attempt, above); next != nil {
			return next, nil
		}
		return nil, errNothingToDo
	})
}

// JumpAll raises the namespace's floor and then the counter of every lease and of
// every node in it to at least above, and returns how many it raised. It goes on
// past records that it cannot raise and returns their errors joined. Sessions of
// raised nodes end at their next renewal.
//
// Where clients run meanwhile, call it again after the largest TTL: a name that was
// used for the first time at the same moment may not have been there to be raised.
func (c *Client) JumpAll(ctx context.Context, above uint64) (raised int, err error) {
	if err := checkJump(above); err != nil {
		return 0, err
	}
	if err := c.raiseFloor(ctx, above); err != nil {
		return 0, err
	}
	var errs []error
	for f, err := range c.records(ctx) {
		if err == nil && f.rec.Counter < above {
			if err = c.Jump(ctx, f.rec.Resource, above); err == nil {
				raised++
			}
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	for h, err := range c.ids.List(ctx) {
		changed := false
		if err == nil {
			changed, err = c.ids.Jump(ctx, h.Node, above)
		}
		if changed {
			raised++
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	return raised, errors.Join(errs...)
}

func checkJump(above uint64) error {
	if above < 1 || above > record.MaxJump {
		return store.Errorf(ErrInvalid, "", "jump", "", "give a number from 1 to %d, not %d: what comes after it needs room", uint64(record.MaxJump), above)
	}
	return nil
}

// Pruned is what Prune did.
type Pruned struct {
	// Leases and Archives count what was removed; Kept counts leases that stay.
	Leases, Archives, Kept int
	// Floor is the namespace's floor now, if it was raised.
	Floor uint64
}

// pruneBatch is how many released records share one raise of the floor.
const pruneBatch = 256

// Prune removes records that were released longer ago than the namespace's
// retention, each by its version, after their history was archived and the floor
// was raised to their counters (LS15). Archives of tenures that ended longer ago
// than twice the retention go too (LS13). Without retention it is ErrInvalid. Live
// leases are never touched: a name in use has another version by then. Nor is a
// record that everyone first has to watch (LS10, LS11): how long ago that began
// is told by a wall clock only, and whoever finds no record watches nothing.
func (c *Client) Prune(ctx context.Context) (Pruned, error) {
	var p Pruned
	set, err := c.Settings(ctx)
	if err != nil {
		return p, err
	}
	if set.Retention == 0 {
		return p, store.Errorf(ErrInvalid, c.st.Info().Identity, "prune", c.namespace, "the namespace keeps everything for ever (retention off, chosen when it was made)")
	}
	del, can := store.AsConditionalDeleter(c.st)
	if !can {
		return p, store.Errorf(ErrInvalid, c.st.Info().Identity, "prune", c.namespace, "the store cannot delete by version")
	}
	if err := c.soundDelete(ctx, "prune"); err != nil {
		return p, err
	}
	before := time.UnixMilli(c.nowMS()).Add(-set.Retention)
	var batch []found
	var errs []error
	for f, err := range c.records(ctx) {
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if f.rec.Held() || f.rec.Watched() || !time.UnixMilli(f.rec.Ended.At).Before(before) {
			p.Kept++
			continue
		}
		if batch = append(batch, f); len(batch) == pruneBatch {
			errs = append(errs, c.pruneLeases(ctx, del, batch, &p))
			batch = nil
		}
	}
	errs = append(errs, c.pruneLeases(ctx, del, batch, &p), c.pruneArchives(ctx, del, before.Add(-set.Retention), &p))
	return p, errors.Join(errs...)
}

// soundDelete races a delete by version against replaces: a store that says it
// has one need not have an atomic one (LS15). The verdict of an earlier day does
// not count, for servers change behind their drivers.
func (c *Client) soundDelete(ctx context.Context, op string) error {
	if !c.probe {
		return nil // the caller answers for the store
	}
	r, err := store.Probe(ctx, c.st, store.ProbeOptions{Prefix: store.Prefix(c.namespace, "probe")})
	if !r.Sound {
		return err
	}
	if !r.DeleteIfSound {
		return store.Errorf(ErrInvalid, c.st.Info().Identity, op, c.namespace,
			"records cannot be removed safely here: %s; keep everything (retention 0)", r.DeleteIfFlaw)
	}
	return nil
}

func (c *Client) pruneLeases(ctx context.Context, del store.ConditionalDeleter, batch []found, p *Pruned) error {
	if len(batch) == 0 {
		return nil
	}
	t := c.timing.Defaults()
	floor := uint64(0)
	for _, f := range batch {
		floor = max(floor, f.rec.Counter)
	}
	if err := c.raiseFloor(ctx, floor); err != nil {
		return err
	}
	p.Floor = max(p.Floor, floor)
	var errs []error
	for _, f := range batch {
		if len(f.rec.Recent) > 0 {
			if err := c.archiveTenures(ctx, f.rec.Resource, f.rec.Recent, t); err != nil {
				errs = append(errs, err)
				continue
			}
		}
		call, cancel := settle.Limit(ctx, c.clk, t.Attempt)
		err := del.DeleteIf(call, c.leaseKey(f.rec.Resource), f.ver)
		cancel()
		switch {
		case err == nil:
			p.Leases++
		case errors.Is(err, store.ErrConflict):
			p.Kept++ // it came to life meanwhile
		case !errors.Is(err, store.ErrNotFound):
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// pruneArchives removes archives whose newest tenure ended before the given
// time.
func (c *Client) pruneArchives(ctx context.Context, del store.ConditionalDeleter, before time.Time, p *Pruned) error {
	var errs []error
	for key, err := range c.list(ctx, store.Prefix(c.namespace, "hist")) {
		if err != nil {
			return errors.Join(append(errs, err)...)
		}
		if err := c.pruneArchive(ctx, del, key, before, p); err != nil && !errors.Is(err, store.ErrNotFound) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (c *Client) pruneArchive(ctx context.Context, del store.ConditionalDeleter, key string, before time.Time, p *Pruned) error {
	call, cancel := settle.Limit(ctx, c.clk, c.timing.Defaults().Attempt)
	defer cancel()
	o, err := c.st.Get(call, key, maxArchiveBody)
	if err != nil {
		return err
	}
	a, err := lease.DecodeAnyArchive(key, o.Body)
	if err != nil {
		return err
	}
	if newest := a.Tenures[len(a.Tenures)-1]; !time.UnixMilli(newest.Until).Before(before) {
		return nil
	}
	if err := del.DeleteIf(call, key, o.Version); err != nil {
		return err
	}
	p.Archives++
	return nil
}
