package tenure

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/internal/settle"
	"github.com/tenure-project/tenure/store"
)

// DefaultRetention is how long a released record is kept at least on stores of
// one host (LS15).
const DefaultRetention = 30 * 24 * time.Hour

// Settings are the durable settings of a namespace.
type Settings struct {
	// Namespace is its name.
	Namespace string
	// Level is the format level that is written in it (ST15).
	Level int
	// Retention is how long a released record is kept at least; 0: for ever.
	Retention time.Duration
	// Floor is below every token that a name never seen before can get.
	Floor uint64
	// StoreClock says that the store's own clock may prove a holder silent (LS3).
	StoreClock bool
	// Created is when, by the creator's wall clock.
	Created time.Time
}

func (c *Client) spaceKey() string { return store.Key(c.namespace, "meta", "namespace") }

// readSpace reads the namespace's record.
func (c *Client) readSpace(ctx context.Context) (*lease.Namespace, store.Version, error) {
	call, cancel := settle.Limit(ctx, c.clk, c.timing.Defaults().Attempt)
	defer cancel()
	o, err := c.st.Get(call, c.spaceKey(), lease.MaxNamespaceBody)
	if err != nil {
		return nil, "", err
	}
	n, err := c.decodeSpace(o.Body)
	return n, o.Version, err
}

// decodeSpace decodes the namespace's record. Every acquire may read it and it
// hardly ever changes, so equal bytes are decoded once.
func (c *Client) decodeSpace(body []byte) (*lease.Namespace, error) {
	c.mu.Lock()
	known, same := c.spaceRead, bytes.Equal(body, c.spaceBody)
	c.mu.Unlock()
	if same {
		return &known, nil
	}
	n, err := lease.DecodeNamespace(c.spaceKey(), c.namespace, body)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.spaceRead, c.spaceBody = *n, body
	c.mu.Unlock()
	return n, nil
}

// openNamespace reads the settings, or makes them where the namespace is
// certainly new: leases without settings mean that something was lost.
func (c *Client) openNamespace(ctx context.Context) error {
	seen := c.memory.highest("")
	n, _, err := c.readSpace(ctx)
	if c.lookOnly && errors.Is(err, store.ErrNotFound) {
		n, err = &lease.Namespace{}, nil
	}
	for errors.Is(err, store.ErrNotFound) {
		if n, err = c.createSpace(ctx); errors.Is(err, store.ErrExists) {
			n, _, err = c.readSpace(ctx)
		}
	}
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.space = n
	c.mu.Unlock()
	return c.memory.check("", seen, n.Floor)
}

func (c *Client) createSpace(ctx context.Context) (*lease.Namespace, error) {
	if c.recover != nil {
		return c.recoverSpace(ctx)
	}
	for _, kind := range []string{"lease", "identity"} {
		if err := c.checkNoneLeft(ctx, kind); err != nil {
			return nil, err
		}
	}
	return c.newSpace(ctx, 0)
}

// checkNoneLeft returns an error if there is any record of the kind though there
// are no settings.
func (c *Client) checkNoneLeft(ctx context.Context, kind string) error {
	for key, err := range c.list(ctx, store.Prefix(c.namespace, kind)) {
		if err != nil {
			return err
		}
		switch _, _, err := c.readSpace(ctx); {
		case err == nil:
			return store.Errorf(store.ErrExists, "", "open", c.spaceKey(), "another made it just now")
		case !errors.Is(err, store.ErrNotFound):
			return err
		}
		return store.Errorf(ErrCorrupt, c.st.Info().Identity, "open", c.spaceKey(),
			"the namespace has records (%s) but its settings are gone: restore them, or see docs/GUARANTEES.md on lost state", key)
	}
	return nil
}

// recoverSpace makes lost settings anew, above every counter that is still
// there and above what the operator says.
func (c *Client) recoverSpace(ctx context.Context) (*lease.Namespace, error) {
	if err := checkJump(max(*c.recover, 1)); err != nil {
		return nil, err
	}
	floor := *c.recover
	for f, err := range c.records(ctx) {
		if err != nil {
			return nil, err
		}
		floor = max(floor, f.rec.Counter)
	}
	for h, err := range c.ids.List(ctx) {
		if err != nil {
			return nil, err
		}
		floor = max(floor, h.Record.Counter)
	}
	c.log.Warn("namespace: its settings were lost and are made anew", "namespace", c.namespace, "floor", floor)
	return c.newSpace(ctx, floor)
}

func (c *Client) newSpace(ctx context.Context, floor uint64) (*lease.Namespace, error) {
	n := &lease.Namespace{V: record.Level, Name: c.namespace, Level: record.Level, Created: c.nowMS(), WriterAttempt: c.newID(), StoreClock: c.storeClock, Floor: floor}
	if can := store.CanClock | store.CanModTime; c.storeClock && !c.st.Info().Can.Has(can) {
		return nil, store.Errorf(ErrInvalid, c.st.Info().Identity, "open", "", "this store has no clock of its own that leases could be judged by")
	}
	if r := c.retention; r != nil {
		n.RetentionMS = r.Milliseconds()
	} else if info := c.st.Info(); info.SingleHost && info.Can.Has(store.CanDeleteIf) {
		n.RetentionMS = DefaultRetention.Milliseconds()
	}
	if n.RetentionMS != 0 && !c.st.Info().Can.Has(store.CanDeleteIf) {
		return nil, store.Errorf(ErrInvalid, c.st.Info().Identity, "open", "", "this store cannot delete by version, so the namespace can have no retention: give 0")
	}
	if n.RetentionMS != 0 && !c.st.Info().SingleHost {
		if err := c.soundDelete(ctx, "open"); err != nil {
			return nil, err
		}
	}
	_, err := c.writeSpace(ctx, n, "")
	return n, err
}

func (c *Client) writeSpace(ctx context.Context, n *lease.Namespace, over store.Version) (store.Version, error) {
	body, err := record.Encode(n, lease.MaxNamespaceBody)
	if err != nil {
		return "", err
	}
	id := n.WriterAttempt
	t := c.timing.Defaults()
	ctx, cancel := settle.Limit(ctx, c.clk, t.TTL)
	defer cancel()
	res, err := settle.Do(ctx, c.st, settle.Write{
		Key: c.spaceKey(), Body: body, Over: over, Limit: lease.MaxNamespaceBody,
		Mine: func(b []byte) bool {
			n, err := lease.DecodeNamespace(c.spaceKey(), c.namespace, b)
			return err == nil && n.WriterAttempt == id
		},
	}, c.pace(t))
	return res.Version, err
}

// changeSpace applies f to the namespace's record until it sticks. f returns
// false if nothing has to change.
func (c *Client) changeSpace(ctx context.Context, f func(n *lease.Namespace) bool) error {
	for {
		n, v, err := c.readSpace(ctx)
		if err != nil {
			return err
		}
		if !f(n) {
			return nil
		}
		n.WriterAttempt = c.newID()
		if _, err = c.writeSpace(ctx, n, v); !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
}

// raiseFloor makes the floor at least floor, durably.
func (c *Client) raiseFloor(ctx context.Context, floor uint64) error {
	return c.changeSpace(ctx, func(n *lease.Namespace) bool {
		if n.Floor >= floor {
			return false
		}
		n.Floor = floor
		return true
	})
}

// floor reads the floor now; callers read it after the record (LS1, LS15).
func (c *Client) floor(ctx context.Context) (uint64, error) {
	seen := c.memory.highest("")
	n, _, err := c.readSpace(ctx)
	if errors.Is(err, store.ErrNotFound) {
		return 0, store.Errorf(ErrCorrupt, c.st.Info().Identity, "read floor", c.spaceKey(), "the namespace's settings are gone")
	}
	if err != nil {
		return 0, err
	}
	return n.Floor, c.memory.check("", seen, n.Floor)
}

func (c *Client) retains() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.space.RetentionMS != 0
}

// Settings reads the namespace's durable settings; ErrNotFound if it was never
// made.
func (c *Client) Settings(ctx context.Context) (Settings, error) {
	n, _, err := c.readSpace(ctx)
	if err != nil {
		return Settings{}, err
	}
	return Settings{
		Namespace: n.Name, Level: n.Level, Retention: n.Retention(), Floor: n.Floor, StoreClock: n.StoreClock,
		Created: time.UnixMilli(n.Created),
	}, nil
}

// Upgrade raises the namespace's format level to the newest that this program
// writes, and reports the level before and after. Programs that know only older
// levels are refused from then on (ST15).
func (c *Client) Upgrade(ctx context.Context) (from, to int, err error) {
	err = c.changeSpace(ctx, func(n *lease.Namespace) bool {
		from, to = n.Level, max(n.Level, record.Level)
		changed := from != to
		n.Level = to
		return changed
	})
	return from, to, err
}
