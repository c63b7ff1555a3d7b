package authority

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	tenure "github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/internal/clock"
	core "github.com/tenure-project/tenure/internal/core/authority"
	"github.com/tenure-project/tenure/internal/core/authority/recovery"
	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/internal/settle"
	"github.com/tenure-project/tenure/store"
)

// reportElement is what follows the kind in the key of one report: every report of
// every process start has a key of its own, which is written once.
func reportElement(r core.Report) string {
	return fmt.Sprintf("%s/%016d-%016d", store.EncodeName(r.Node), r.Term, r.Request)
}

// pending reads one pending report strictly (ST7); nil if there is none any more.
func (f *files) pending(ctx context.Context, element string) (*recovery.Pending, error) {
	key := f.key(kindReport, element)
	body, err := f.get(ctx, key, recovery.MaxPending)
	if err != nil || body == nil {
		return nil, err
	}
	var p recovery.Pending
	if err := record.Decode(key, body, &p); err != nil {
		return nil, err
	}
	if p.Authority != f.name || reportElement(p.Report) != element {
		return nil, store.Errorf(store.ErrCorrupt, f.identity(), "read", key,
			"the report is node %q's to authority %q, term %d, request %d", p.Node, p.Authority, p.Term, p.Request)
	}
	return &p, nil
}

// found lists the pending reports, and reads those that known does not have. One
// that cannot be read is skipped, and is in the error.
func (f *files) found(ctx context.Context, known func(element string) bool) (map[string]core.Report, map[string]bool, error) {
	listed, fresh := map[string]bool{}, []string(nil)
	for element, err := range f.elements(ctx, f.key(kindReport, ""), "") {
		if err != nil {
			return nil, nil, err
		}
		listed[element] = true
		if strings.Count(element, "/") == 1 && !known(element) {
			fresh = append(fresh, element)
		}
	}
	reports, errs := make([]*recovery.Pending, len(fresh)), make([]error, len(fresh))
	many(len(fresh), func(i int) { reports[i], errs[i] = f.pending(ctx, fresh[i]) })
	all := map[string]core.Report{}
	for i, p := range reports {
		if p != nil {
			all[fresh[i]] = p.Report
		}
	}
	return all, listed, errors.Join(errs...)
}

// reports are what a leader knows of the pending reports. It is safe for concurrent
// use.
type reports struct {
	mu      *sync.Mutex
	pending map[string]core.Report // read, and not shown by the head yet
	done    map[string]bool        // shown by the head; to be removed
	clash   map[string]core.Report // of a start whose term another one claims; kept for people
	looks   uint64                 // listings that began
	since   map[string]uint64      // of pending: how many had begun when it was noted
}

func newReports() reports {
	return reports{mu: &sync.Mutex{}, pending: map[string]core.Report{}, done: map[string]bool{}, clash: map[string]core.Report{}, since: map[string]uint64{}}
}

// reset forgets everything: another leadership begins.
func (r *reports) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.pending)
	clear(r.done)
	clear(r.clash)
	clear(r.since)
}

// look begins a listing, and numbers it.
func (r *reports) look() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.looks++
	return r.looks
}

// waiting reports whether any report is to be folded.
func (r *reports) waiting() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.pending) > 0
}

// take are the reports to be folded into the next write, oldest name first.
func (r *reports) take() []core.Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]core.Report, 0, len(r.pending))
	for _, element := range slices.Sorted(maps.Keys(r.pending)) {
		all = append(all, r.pending[element])
	}
	return all
}

// shown notes what h tells of the reports: who waits for one reads it there.
func (r *reports) shown(h *core.Head) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for element, report := range r.pending {
		switch fate, known := h.FateOf(report); {
		case fate == core.Clash:
			delete(r.pending, element)
			r.clash[element] = report
		case known:
			delete(r.pending, element)
			r.done[element] = true
		}
	}
}

// trouble says whose reports contradict each other.
func (r *reports) trouble(identity string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := slices.Sorted(maps.Keys(r.clash))
	if len(all) == 0 {
		return nil
	}
	report := r.clash[all[0]]
	return store.Errorf(store.ErrCorrupt, identity, "fold", all[0], "two process starts of node %q claim term %d: stop and look", report.Node, report.Term)
}

// push adds one report that is known to be pending.
func (r *reports) push(element string, report core.Report) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pending[element], r.since[element] = report, r.looks
}

func (r *reports) known(element string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, pending := r.pending[element]
	_, clash := r.clash[element]
	return pending || clash || r.done[element]
}

// add takes over what a listing found, and returns what is to be removed: reports
// that the head shows and that are listed yet. A report that came to be known after
// the listing began may be younger than it, and stays though it is not listed.
func (r *reports) add(look uint64, found map[string]core.Report, listed map[string]bool) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for element, report := range found {
		if _, known := r.pending[element]; !known && !r.done[element] {
			r.pending[element], r.since[element] = report, r.looks
		}
	}
	maps.DeleteFunc(r.pending, func(element string, _ core.Report) bool { return !listed[element] && r.since[element] < look })
	maps.DeleteFunc(r.clash, func(element string, _ core.Report) bool { return !listed[element] })
	maps.DeleteFunc(r.done, func(element string, _ bool) bool { return !listed[element] })
	maps.DeleteFunc(r.since, func(element string, _ uint64) bool { _, pending := r.pending[element]; return !pending })
	return slices.Sorted(maps.Keys(r.done))
}

// collect finds pending reports beside the keeper and never in its way: one list per
// renew interval at most (RF).
func (l *Leader) collect() {
	defer l.caught("collector")
	every := l.a.cfg.timing.Renew
	for wait := every / 2; clock.Sleep(l.a.c.Clock, wait, l.keeping.Done()); wait = every {
		err := l.a.gather(l.keeping, true)
		if l.keeping.Err() != nil {
			return
		}
		if err != nil && l.a.Health().FoldErr == nil { // told once
			l.a.c.Log.Warn("authority: pending fault reports cannot be read", "authority", l.a.name, "error", err)
		}
		l.a.note(func(h *Health) { h.FoldErr = err })
	}
}

// gather finds what is pending, and removes what the head shows if clean is set.
func (a *Authority) gather(ctx context.Context, clean bool) error {
	look := a.reports.look()
	found, listed, err := a.found(ctx, a.reports.known)
	if listed == nil {
		return err
	}
	done := a.reports.add(look, found, listed)
	err = errors.Join(err, a.reports.trouble(a.identity()))
	if !clean {
		return err
	}
	for _, element := range done {
		if bad := a.remove(ctx, a.key(kindReport, element)); bad != nil {
			return errors.Join(err, bad) // the next interval tries again
		}
	}
	return err
}

// Report reports a fault of this process, leader or not (RF). It writes the report
// at this process's own key and answers once the head shows it, with the fault as
// the head has it: the leader folds what is pending into its next write of the
// head; only after one TTL without that does this process write the head itself.
// If ctx ends first the report stands pending, and is folded by the next leader that
// renews. why is for people, at most 256 bytes. A head whose slots are full of active
// faults has no room for another: that is a store.ErrUnavailable after one TTL, and
// the report stands pending.
func (a *Authority) Report(ctx context.Context, why string) (Fault, error) {
	a.mu.Lock()
	a.requests++
	r := core.Report{Node: a.me.Node, Incarnation: a.me.Incarnation, Term: a.me.Term, Request: a.requests}
	a.mu.Unlock()
	p := &recovery.Pending{V: record.Level, Authority: a.name, Report: r, Attempt: a.c.NewID(), Why: why, At: a.c.NowMS()}
	body, err := p.Encode()
	if err != nil {
		return Fault{}, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(a.over, func() { cancel(context.Cause(a.over)) })()
	key := a.key(kindReport, reportElement(r))
	if err := a.put(ctx, key, body, recovery.MaxPending); err != nil {
		if errors.Is(err, store.ErrConflict) {
			err = store.Wrap(store.ErrCorrupt, a.identity(), "report a fault", key, err) // two starts claim one term
		}
		return Fault{}, err
	}
	w := reporter{a: a, report: r, from: a.c.Clock.Boot(), window: a.firstWindow()}
	fault, err := w.run(ctx)
	if err == nil || errors.Is(err, ErrSuperseded) {
		a.c.Background(func(ctx context.Context) { _ = a.remove(ctx, key) }) // else the leader does
	}
	return fault, err
}

// firstWindow is the first back-off of a reporter: several writes of a slow key.
func (a *Authority) firstWindow() time.Duration {
	w := 2 * a.c.Poll
	if rate := a.c.Store.Info().WritesPerSecond; rate > 0 {
		w = max(w, time.Duration(4/rate*float64(time.Second)))
	}
	return w
}

// reporter waits until the head shows one report, and sees to it after a TTL.
type reporter struct {
	a      *Authority
	report core.Report
	from   time.Duration // boot clock since when it is pending
	window time.Duration // of the next back-off
	paused bool          // the back-off before the next write has passed
}

func (w *reporter) run(ctx context.Context) (Fault, error) {
	for {
		s, err := w.a.read(ctx)
		switch {
		case ctx.Err() != nil:
			return Fault{}, store.Wrap(store.ErrUnknown, w.a.identity(), "report a fault", w.a.headKey, context.Cause(ctx))
		case err != nil && !retryable(err):
			return Fault{}, err
		case err != nil:
			w.a.pause(ctx, w.a.cfg.timing.Renew/2)
			continue
		}
		if s.head != nil {
			if fate, known := s.head.FateOf(w.report); known {
				return w.answer(s.head, fate)
			}
		}
		if err := w.wait(ctx, s); err != nil {
			return Fault{}, err
		}
	}
}

// answer is what the head says of the report.
func (w *reporter) answer(h *core.Head, fate core.Fate) (Fault, error) {
	i, _ := slices.BinarySearchFunc(h.Slots, w.report.Node, func(s core.Slot, node string) int { return strings.Compare(s.Node, node) })
	switch fate {
	case core.Superseded:
		return faultOf(h.Slots[i]), fmt.Errorf("authority %q: %w", h.Authority, ErrSuperseded)
	case core.Clash:
		return faultOf(h.Slots[i]), store.Errorf(store.ErrCorrupt, w.a.identity(), "report a fault", w.a.headKey,
			"two process starts of node %q claim term %d: stop and look", w.report.Node, w.report.Term)
	}
	return faultOf(h.Slots[i]), nil
}

// wait leaves the leader its TTL, and then writes the head after a back-off that
// leaves it room (RF).
func (w *reporter) wait(ctx context.Context, s state) error {
	a := w.a
	if s.head == nil { // nobody ever led: there is nothing to write it into
		a.awaitChange(ctx, "")
		return nil
	}
	if left := recovery.Overdue(s.head, w.from, s.at, a.cfg.timing.Rho); left > 0 {
		until, cancel := a.untilBoot(ctx, s.at+left)
		defer cancel()
		a.awaitChange(until, s.ver)
		return nil
	}
	if !w.paused {
		w.paused = true
		clock.Sleep(a.c.Clock, time.Duration(a.c.Rand()*float64(w.window)), ctx.Done())
		return nil // look first: others may have written it
	}
	w.paused, w.window = false, min(2*w.window, a.cfg.timing.TTL)
	err := w.fold(ctx)
	var refused *refusal
	switch {
	case errors.As(err, &refused):
		return refused.err
	case err == nil || retryable(err) || settle.LostRace(err):
		return nil
	}
	return err
}

// fold writes the head with everything that is pending.
func (w *reporter) fold(ctx context.Context) error {
	a := w.a
	found, _, _ := a.found(ctx, func(string) bool { return false }) // a list that fails hides others' reports only
	all := []core.Report{w.report}
	for _, element := range slices.Sorted(maps.Keys(found)) {
		if r := found[element]; r != w.report {
			all = append(all, r)
		}
	}
	ctx, cancel := settle.Limit(ctx, a.c.Clock, 2*a.cfg.timing.Attempt)
	defer cancel()
	free, err := a.take(ctx, a.lock)
	if err != nil {
		return err
	}
	defer free()
	if a.Leader() != nil { // looked at under the lock: no leadership begins now
		if _, fates, err := a.head.Fold(a.c.NewID(), w.report); err == nil && fates[0] == core.Full { // it leads: there is a head
			return a.noRoom()
		}
		a.reports.push(reportElement(w.report), w.report)
		return nil // the keeper's next write is as good, and no other goes on from a foreign one
	}
	if _, err = a.refresh(ctx); err != nil || a.head == nil {
		return err
	}
	if _, known := a.head.FateOf(w.report); known {
		return nil
	}
	next, fates, err := a.head.Fold(a.c.NewID(), all...)
	switch {
	case err != nil:
		return err
	case fates[0] == core.Full:
		return a.noRoom()
	case next == nil:
		return nil
	}
	seldom := func(_ *settle.Write, p *settle.Pace) { p.Backoff = max(p.Backoff, w.window) }
	if _, err = a.write(ctx, next, seldom); errors.Is(err, store.ErrUnknown) {
		a.settleLater()
	}
	return err
}

// noRoom refuses a report for which the head has no slot.
func (a *Authority) noRoom() error {
	return &refusal{store.Errorf(store.ErrUnavailable, a.identity(), "report a fault", a.headKey,
		"the head has no room for another active fault; the report stands pending: end a recovery round first")}
}

func faultOf(s core.Slot) Fault {
	return Fault{Proof: tenure.Proof{Node: s.Node, Incarnation: s.Incarnation, Term: s.Term}, Request: s.Request, Sequence: s.Sequence, Active: s.Active}
}

// Pending lists the fault reports that wait at their reporters' keys and that the
// head does not show yet. The error tells of those that cannot be read, beside the
// others, and of one of another start than the head has for its term, which is
// store.ErrCorrupt: such a report holds up every release (RF). For people and tests.
func (r *Reader) Pending(ctx context.Context) ([]Fault, error) {
	found, listed, err := r.found(ctx, func(string) bool { return false })
	if listed == nil {
		return nil, err
	}
	s, bad := r.read(ctx)
	if bad != nil {
		return nil, bad
	}
	var all []Fault
	for _, element := range slices.Sorted(maps.Keys(found)) {
		p := found[element]
		if s.head != nil {
			fate, known := s.head.FateOf(p)
			if fate == core.Clash {
				err = errors.Join(err, store.Errorf(store.ErrCorrupt, r.identity(), "read", r.key(kindReport, element),
					"two process starts of node %q claim term %d: stop and look", p.Node, p.Term))
			}
			if known {
				continue
			}
		}
		all = append(all, faultOf(core.Slot{Report: p}))
	}
	return all, err
}
