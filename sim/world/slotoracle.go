package world

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tenure-project/tenure/internal/core/lease"
	core "github.com/tenure-project/tenure/internal/core/slots"
	"github.com/tenure-project/tenure/slots"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
)

// tableState is what the oracle knows of one table of slots.
type tableState struct {
	name                   string
	key, rowsKey, planKey  string
	slots                  []uint16               // that are looked at
	head                   *core.Table            // the record of the table; nil: absent
	rows                   map[uint16]core.Row    // of the rows form, as they stand
	table                  *core.Table            // as it stands, whole
	plan                   *core.Plan             // as it stands
	landed                 map[uint16]time.Time   // when the state of a row came, by first slot
	given                  map[uint64]*givenEpoch // every epoch that a row ever had
	starts                 map[string]*Proc       // whose each incarnation is
	hosts                  []*slotHost            // that may answer
	highest, answered, res map[uint16]uint64      // epoch of a slot: in the table, answered, taken by the resource
	writers                map[uint64]*slotHost   // who wrote to the resource, by epoch
	made                   map[*Proc]int          // effects
}

// givenEpoch is an epoch that was given to a host for a range.
type givenEpoch struct {
	rng   slots.Range
	p     *Proc
	kind  lease.Kind
	ttl   time.Duration
	alive time.Time // its host's last sign of life, as it arrived
	how   string    // how that ended; empty while it lasts
}

func newTableState(p Plan, name string) *tableState {
	return &tableState{
		name: name, key: store.Key(Namespace, "slots", name), rowsKey: store.Key(Namespace, "slots-row", name) + "/", planKey: store.Key(Namespace, "slots-plan", name),
		slots: p.sampleSlots(), rows: map[uint16]core.Row{}, landed: map[uint16]time.Time{}, given: map[uint64]*givenEpoch{}, starts: map[string]*Proc{},
		highest: map[uint16]uint64{}, answered: map[uint16]uint64{}, res: map[uint16]uint64{}, writers: map[uint64]*slotHost{}, made: map[*Proc]int{},
	}
}

// tableOf is the table that a key is of, nil if it is none's.
func (o *oracle) tableOf(key string) *tableState {
	for _, ts := range o.tables {
		if key == ts.key || key == ts.planKey || strings.HasPrefix(key, ts.rowsKey) {
			return ts
		}
	}
	return nil
}

// tableEffect judges one effect on a table (R43).
func (o *oracle) tableEffect(ts *tableState, e effect) {
	changes := e.changes
	if e.op != faultstore.OpCommit {
		changes = []store.Change{{Key: e.key, Body: e.body}}
		if e.op == faultstore.OpDelete || e.op == faultstore.OpDeleteIf {
			changes[0].Do = store.Remove
		}
	}
	ts.made[e.from]++
	if e.key == ts.planKey {
		o.planEffect(ts, e)
		return
	}
	for _, c := range changes {
		if err := ts.change(c); err != nil {
			o.fail("R43", "%s: %s wrote what cannot be read: %v", ts.name, who(e.from), err)
			return
		}
	}
	next, err := ts.assemble()
	if err != nil {
		o.fail("R43", "%s: %s made a table that is none: %v", ts.name, who(e.from), err)
		return
	}
	o.w.trace.add(who(e.from), "%s: %s", e.op, describeTable{ts.name, next})
	if ts.table == nil {
		if len(next.Rows) > 0 {
			o.fail("R43", "%s: %s made a table with rows", ts.name, who(e.from))
		}
	} else {
		o.tableStep(ts, ts.table, next, e.from)
	}
	ts.table = next
	o.oneHost(ts)
}

// change notes one change of a key.
func (ts *tableState) change(c store.Change) (err error) {
	switch {
	case c.Do == store.Keep:
	case c.Key == ts.key && c.Do == store.Remove:
		return fmt.Errorf("the table was removed")
	case c.Key == ts.key:
		ts.head, err = core.DecodeTable(c.Key, ts.name, c.Body)
	default:
		first, bad := strconv.ParseUint(strings.TrimPrefix(c.Key, ts.rowsKey), 10, 16)
		if bad != nil || ts.head == nil {
			return fmt.Errorf("a row was written to %s", short(c.Key))
		}
		delete(ts.rows, uint16(first))
		if c.Do != store.Remove {
			ts.rows[uint16(first)], err = ts.head.DecodeRow(c.Key, uint16(first), c.Body)
		}
	}
	return err
}

// assemble is the table as it stands.
func (ts *tableState) assemble() (*core.Table, error) {
	if ts.head.Form == core.RegisterForm {
		return ts.head, nil
	}
	var rows []core.Row
	for _, r := range ts.rows {
		rows = append(rows, r)
	}
	return core.Assemble(ts.head, core.All, rows)
}

// describeTable is a table for the trace, without ids.
type describeTable struct {
	name string
	t    *core.Table
}

func (d describeTable) String() string {
	s := fmt.Sprintf("table %s: counter %d", d.name, d.t.Counter)
	for i := range d.t.Rows {
		r := &d.t.Rows[i]
		s += fmt.Sprintf("; %v@%d.%d ", r.Range, r.Epoch, r.Renewal)
		if r.Held() {
			s += string(r.Host.Kind) + " " + r.Host.Owner
		} else {
			s += r.Freed.How + " " + r.Freed.Successor
		}
	}
	return s
}

// tableStep judges what one write did to the table.
func (o *oracle) tableStep(ts *tableState, prev, next *core.Table, by *Proc) {
	if next.Birth != prev.Birth || next.Form != prev.Form || next.Counter < prev.Counter {
		o.fail("R43", "%s: the counter is %d after %d, by %s", ts.name, next.Counter, prev.Counter, who(by))
	}
	changed := next.Counter != prev.Counter
	landed := map[uint16]time.Time{}
	for i := range next.Rows {
		r := &next.Rows[i]
		p := prev.RowAt(r.Range)
		switch {
		case p != nil && p.State() == r.State() && p.Held() == r.Held():
			landed[r.Range.A] = ts.landed[r.Range.A]
			continue
		case p != nil && p.Epoch == r.Epoch:
			o.rowWent(ts, p, r, prev, next, by)
		default:
			o.rowGiven(ts, prev, next, r, by)
		}
		landed[r.Range.A] = time.Now()
		changed = true
	}
	for i := range prev.Rows {
		if p := &prev.Rows[i]; len(next.Overlapping(p.Range)) == 0 {
			changed = true
			if p.Held() {
				o.fail("R43", "%s: the row %v of %s vanished, by %s", ts.name, p.Range, p.Owner(), who(by))
			}
		}
	}
	if !changed {
		o.fail("R43", "%s: %s wrote the table, and decided nothing", ts.name, who(by))
	}
	ts.landed = landed
	for _, s := range ts.slots {
		if r := next.RowOf(s); r != nil {
			if r.Epoch < ts.highest[s] {
				o.fail("R43", "%s: slot %d has epoch %d after %d, by %s", ts.name, s, r.Epoch, ts.highest[s], who(by))
			}
			ts.highest[s] = r.Epoch
		}
	}
}

// starts notes whose an incarnation is, and judges that it is by's.
func (o *oracle) startsAs(ts *tableState, h *core.Host, by *Proc) {
	if p, known := ts.starts[h.Incarnation]; known && p != by || by == nil {
		o.fail("R43", "%s: %s wrote for %s, whose row it is not", ts.name, who(by), h.Owner)
		return
	}
	ts.starts[h.Incarnation] = by
}

// rowGiven judges a row with an epoch of its own.
func (o *oracle) rowGiven(ts *tableState, prev, next *core.Table, r *core.Row, by *Proc) {
	o.stats["epochs given"]++
	switch {
	case !r.Held():
		o.fail("R43", "%s: %s made a free row %v of epoch %d", ts.name, who(by), r.Range, r.Epoch)
		return
	case r.Epoch <= prev.Counter || ts.given[r.Epoch] != nil:
		o.fail("R43", "%s: %s has epoch %d for %v, which was given before; the counter was %d", ts.name, who(by), r.Epoch, r.Range, prev.Counter)
	}
	o.startsAs(ts, r.Host, by)
	for _, q := range prev.Overlapping(r.Range) {
		if next.Overlapping(q.Range)[0].Range == r.Range { // of several rows in its place the first tells of it
			o.rowFalls(ts, &q, r, by)
		}
		if q.Range != r.Range {
			o.stats["ranges of another shape"]++
		}
	}
	ts.given[r.Epoch] = &givenEpoch{rng: r.Range, p: by, kind: r.Host.Kind, ttl: r.Host.TTL(), alive: time.Now()}
}

// rowFalls judges that q may fall for r (R44).
func (o *oracle) rowFalls(ts *tableState, q, r *core.Row, by *Proc) {
	stood, need := time.Since(ts.landed[q.Range.A])+2, time.Duration(0) // a rounding each of two clocks
	gv := ts.given[q.Epoch]
	how := gv.how
	switch {
	case !q.Held() && q.Freed.SupersededTTLMS > 0:
		need = time.Duration(q.Freed.SupersededTTLMS) * time.Millisecond
		o.stats["taken after force"]++
	case !q.Held() && q.Freed.Successor == r.Host.Owner:
		o.stats["taken by a successor"]++
	case !q.Held():
		need = time.Duration(q.Freed.HoldMS) * time.Millisecond
		o.stats["taken when it was free"]++
	case q.Host.Is(r.Host) || q.Host.Owner == r.Host.Owner && sameVolume(q.Host, r.Host):
		how = core.HowRaised
		o.stats["taken anew by its own host"]++
	case q.Host.Kind == lease.Session:
		f := fell{name: ts.name, token: q.Epoch, owner: lease.Owner{Node: q.Host.Node, Incarnation: q.Host.Incarnation, Term: q.Host.Term}}
		for _, p := range r.From {
			if p.Owner == q.Owner() && p.Epoch >= q.Epoch && p.Evidence != "" {
				f.how, f.evidence = p.How, p.Evidence
			}
		}
		o.checkOver(f, by)
		how = f.how
		o.stats["taken from a session"]++
	default:
		need, how = q.Host.TTL(), lease.HowObserved
		o.stats["taken after it lapsed"]++
	}
	gv.how = how
	if stood < need {
		o.fail("R44", "%s: %s took %v although the row before it stood for %v only, want %v", ts.name, who(by), q.Range, stood, need)
	}
}

func sameVolume(a, b *core.Host) bool {
	return a.Volume != nil && b.Volume != nil && *a.Volume == *b.Volume
}

// rowWent judges what one write did to a row under its epoch.
func (o *oracle) rowWent(ts *tableState, p, r *core.Row, prev, next *core.Table, by *Proc) {
	gv := ts.given[p.Epoch]
	switch {
	case p.Held() && r.Held():
		o.startsAs(ts, r.Host, by)
		if restart := !p.Host.Is(r.Host); restart && (p.Host.Owner != r.Host.Owner || !sameVolume(p.Host, r.Host)) {
			o.fail("R43", "%s: %s goes on with epoch %d of %s, and proves nothing", ts.name, who(by), p.Epoch, p.Owner())
		} else if restart {
			o.stats["kept by a restart"]++
		}
		if r.Renewal != p.Renewal+1 || p.Host.TTLMS > r.Host.TTLMS {
			o.fail("R43", "%s: renewal %d of epoch %d after %d", ts.name, r.Renewal, r.Epoch, p.Renewal)
		}
		gv.p, gv.kind, gv.ttl, gv.alive = by, r.Host.Kind, r.Host.TTL(), time.Now()
		o.stats["ranges renewed"]++
	case !p.Held():
		o.fail("R43", "%s: %s changed the free row %v", ts.name, who(by), p.Range)
	default:
		gv.how = r.Freed.How
		o.rowFreed(ts, p, r, prev, next, by)
	}
}

// rowFreed judges the end of an ownership (R43).
func (o *oracle) rowFreed(ts *tableState, p, r *core.Row, prev, next *core.Table, by *Proc) {
	how := r.Freed.How
	o.stats["ranges "+how]++
	if how == lease.HowReleased && next.Counter == prev.Counter {
		if ts.starts[p.Host.Incarnation] != by || by == nil {
			o.fail("R43", "%s: %s released %v of %s", ts.name, who(by), p.Range, p.Owner())
		}
		for _, sh := range ts.hosts {
			if e, ok := sh.h.EpochFor(p.Range.A); ok && e == p.Epoch && !sh.p.crashed.Load() {
				o.fail("R43", "%s: epoch %d of %v was released, and %s answers yet", ts.name, e, p.Range, sh.p.name)
			}
		}
		if r.Freed.Successor != "" {
			o.stats["handed over to a successor"]++
		}
		return
	}
	if next.Counter <= prev.Counter {
		o.fail("R43", "%s: %v was stolen at counter %d", ts.name, p.Range, next.Counter)
	}
	if holder := ts.starts[p.Host.Incarnation]; how == lease.HowVouched && p.Host.Kind == lease.Self && !holder.crashed.Load() {
		o.fail("R44", "%s: %s vouched for %s, who lives", ts.name, who(by), who(holder))
	}
	if p.Host.Kind == lease.Session {
		if _, st := o.startOf(lease.Owner{Node: p.Host.Node, Incarnation: p.Host.Incarnation, Term: p.Host.Term}); st == nil || st.how != how {
			o.fail("R44", "%s: %v was stolen from a session as %s, and that is not over so", ts.name, p.Range, how)
		}
	}
}

// planEffect judges a plan (R43): no older leader's follows a newer one's.
func (o *oracle) planEffect(ts *tableState, e effect) {
	p, err := core.DecodePlan(e.key, ts.name, e.body)
	if err != nil {
		o.fail("R43", "%s: %s wrote a plan that cannot be read: %v", ts.name, who(e.from), err)
		return
	}
	if q := ts.plan; q != nil && (p.Seq != q.Seq+1 || p.Token < q.Token || len(p.Shards) != len(q.Shards)) {
		o.fail("R43", "%s: plan %d of token %d follows plan %d of token %d", ts.name, p.Seq, p.Token, q.Seq, q.Token)
	}
	o.stats["plans"]++
	o.w.trace.add(who(e.from), "%s: plan %d of %s under token %d: %s", e.op, p.Seq, ts.name, p.Token, targets(p))
	ts.plan = p
}

func targets(p *core.Plan) string {
	var all []string
	for _, s := range p.Shards {
		all = append(all, s.Target)
	}
	return strings.Join(slices.Clip(all), " ")
}
