package tenure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/internal/settle"
	"github.com/tenure-project/tenure/store"
)

// maxArchiveBody bounds one archive object.
const maxArchiveBody = lease.MaxBody

// Tenure is one ownership of a lease, past or present. Times are by the wall
// clocks of those who wrote them, for people only.
type Tenure struct {
	// Token is the fencing token.
	Token uint64
	// Owner identifies the handle, Label describes its process.
	Owner, Label string
	// Since and Until bound it; Until is zero while it lasts.
	Since, Until time.Time
	// How it ended (released, observed, proven, store-clock, forced, vouched or
	// revoked), empty while it lasts.
	How string
	// Why and By are what whoever ended it said.
	Why, By string
}

func publicTenure(t lease.Tenure) Tenure {
	return Tenure{
		Token: t.Token, Owner: t.Owner.Incarnation, Label: t.Owner.Node,
		Since: time.UnixMilli(t.Since), Until: time.UnixMilli(t.Until), How: t.How, Why: t.Why, By: t.By,
	}
}

// History is what is known of a lease's past (LS13).
type History struct {
	// Name is the lease's name.
	Name string
	// Tenures are in the order of their tokens, the present one last.
	Tenures []Tenure
	// Dropped counts tenures that were lost because they could not be archived.
	Dropped uint64
}

func (c *Client) archivePrefix(name string) string { return c.archiveKey(name, 0, "") }

// archiveKey names an archive: by the lease, the newest token in it, and the
// attempt that wrote it, so that no two writers ever mean the same object.
func (c *Client) archiveKey(name string, newest uint64, attempt string) string {
	base := store.Key(c.namespace, "hist", name) + "/"
	if attempt == "" {
		return base
	}
	return base + fmt.Sprintf("%016d-%s", newest, attempt[:8])
}

// History reads every known tenure of the lease name, the archived ones too. A
// name never used is ErrNotFound.
func (c *Client) History(ctx context.Context, name string) (History, error) {
	h := History{Name: name}
	if err := store.CheckName("lease name", name); err != nil {
		return h, err
	}
	f, err := c.read(ctx, name, c.timing.Defaults().Attempt)
	if err != nil {
		return h, err
	}
	r := f.rec
	byToken := map[uint64]Tenure{}
	for key, err := range c.list(ctx, c.archivePrefix(name)) {
		if err != nil {
			return h, err
		}
		a, err := c.readArchive(ctx, key, name)
		if err != nil {
			return h, err
		}
		for _, t := range a.Tenures {
			byToken[t.Token] = publicTenure(t)
		}
	}
	if r == nil && len(byToken) == 0 {
		return h, store.Errorf(ErrNotFound, c.st.Info().Identity, "history", name, "the lease was never used")
	}
	if r != nil {
		h.Dropped = r.Dropped
		for _, t := range r.Recent {
			byToken[t.Token] = publicTenure(t)
		}
		if r.Held() {
			byToken[r.Token] = Tenure{Token: r.Token, Owner: r.Owner.Incarnation, Label: r.Owner.Node, Since: time.UnixMilli(r.Since)}
		}
	}
	for _, t := range byToken {
		h.Tenures = append(h.Tenures, t)
	}
	slices.SortFunc(h.Tenures, func(a, b Tenure) int { return int(a.Token) - int(b.Token) })
	return h, nil
}

func (c *Client) readArchive(ctx context.Context, key, name string) (*lease.Archive, error) {
	call, cancel := settle.Limit(ctx, c.clk, c.timing.Defaults().Attempt)
	defer cancel()
	o, err := c.st.Get(call, key, maxArchiveBody)
	if err != nil {
		return nil, err
	}
	return lease.DecodeArchive(key, name, o.Body)
}

// archiveTenures writes past tenures to an immutable object. Two writers may
// archive the same ones; readers count each once.
func (c *Client) archiveTenures(ctx context.Context, name string, past []lease.Tenure, t lease.Timing) error {
	a := &lease.Archive{V: record.Level, Resource: name, Attempt: c.newID(), Tenures: past}
	body, err := record.Encode(a, maxArchiveBody)
	if err != nil {
		return err
	}
	_, err = settle.Do(ctx, c.st, settle.Write{
		Key: c.archiveKey(name, past[len(past)-1].Token, a.Attempt), Body: body, Limit: maxArchiveBody,
		Mine: func(b []byte) bool { return string(b) == string(body) },
	}, c.pace(t))
	if errors.Is(err, store.ErrExists) {
		return nil // an id of eight digits that repeats is our own, settled late
	}
	return err
}

// archiveSoon moves the oldest past tenures out of the record while the lease
// is held, off every path that anybody waits on. The next renewal drops them
// from the record, or for a session's lease, which has none, a write of its own.
func (l *Lease) archiveSoon() {
	rec, _ := l.state()
	past := overflow(rec.Recent)
	if len(past) == 0 {
		return
	}
	l.c.background(func(ctx context.Context) {
		ctx, cancel := settle.Limit(ctx, l.c.clk, l.timing.TTL)
		defer cancel()
		defer context.AfterFunc(l.ctx, cancel)()
		if err := l.c.archiveTenures(ctx, l.name, past, l.timing); err != nil {
			l.c.log.Warn("lease: history not archived, it stays in the record for now", "lease", l.name, "error", err)
			return
		}
		l.mu.Lock()
		l.archive = past[len(past)-1].Token
		l.mu.Unlock()
		if l.s != nil {
			l.dropArchived(ctx)
		}
	})
}

// dropArchived writes the record without what is archived. A release that comes
// meanwhile finds another version than it thinks, and reads.
func (l *Lease) dropArchived(ctx context.Context) {
	held, over := l.state()
	if !held.Held() {
		return
	}
	res, err := l.write(ctx, held.Renew(l.c.newID()).Forget(l.archived()), over)
	if err == nil {
		err = l.adopt(res)
	}
	if err != nil {
		l.mu.Lock()
		l.ver = ""
		l.mu.Unlock()
	}
}

// archiveBefore makes room in a record about to be released, for a command too
// short to have archived on the way: one more write every few changes. If it
// fails the record keeps them: history never blocks a release.
func (l *Lease) archiveBefore(ctx context.Context, next *lease.Record) *lease.Record {
	if token := l.archived(); token > 0 {
		next = next.Forget(token)
	}
	past := overflow(next.Recent)
	if len(past) == 0 {
		return next
	}
	ctx, cancel := settle.Limit(ctx, l.c.clk, l.timing.Attempt)
	defer cancel()
	if err := l.c.archiveTenures(ctx, l.name, past, l.timing); err != nil {
		l.c.log.Warn("lease: history not archived, it stays in the record for now", "lease", l.name, "error", err)
		return next
	}
	return next.Forget(past[len(past)-1].Token)
}

// overflow is what should leave a record: once it has more than eight past
// tenures, all but the newest two, so that it happens every few changes only.
func overflow(recent []lease.Tenure) []lease.Tenure {
	if len(recent) <= lease.RecentKept {
		return nil
	}
	return recent[:len(recent)-2]
}

// endedAs reports whether the tenure of token ended as is says, by the record
// found or, where it tells nothing of that tenure any more, by the archives.
func (c *Client) endedAs(ctx context.Context, name string, r *lease.Record, token uint64, is func(lease.Tenure) bool) (bool, error) {
	if r == nil || r.Token < token || r.Token == token && r.Held() {
		return false, nil
	}
	if len(r.Recent) > 0 && r.Recent[0].Token <= token {
		return r.EndedAs(token, is), nil
	}
	for key, err := range c.list(ctx, c.archivePrefix(name)) {
		if err != nil {
			return false, err
		}
		a, err := c.readArchive(ctx, key, name)
		if errors.Is(err, store.ErrNotFound) {
			continue // removed by retention since it was listed
		}
		if err != nil {
			return false, err
		}
		if i := slices.IndexFunc(a.Tenures, func(t lease.Tenure) bool { return t.Token == token }); i >= 0 {
			return is(a.Tenures[i]), nil
		}
	}
	return false, nil
}
