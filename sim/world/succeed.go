package world

import (
	"context"
	"fmt"
	"time"

	"github.com/tenure-project/tenure/authority"
	"github.com/tenure-project/tenure/authority/checkpoint"
	"github.com/tenure-project/tenure/internal/core/authority/recovery"
	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/store"
)

// succeed lets a fresh process lead every authority after the faults ended, and
// judges that nothing is stuck (R36): it leads within a bound, what is pending gets
// into the head, decisions are admitted, a round is released, and all is sound.
func (w *World) succeed(p *Proc) {
	if w.Plan.Authorities == 0 || p.Client == nil {
		return
	}
	s, err := p.Join(p.ctx, w.Plan.NodeNames()[0])
	if err != nil {
		w.oracle.failNow("R14", "no session after the faults ended: %v", err)
		return
	}
	for _, name := range w.Plan.AuthorityNames() {
		if err := w.inheritAuthority(p, s, name); err != nil {
			w.oracle.failNow("R36", "%s: stuck after the faults ended: %v", name, err)
		}
	}
	if err := s.Quit(func() error { return s.Leave(p.ctx) }); err != nil && !w.gone(s) {
		w.oracle.failNow("R36", "no leave after the faults ended: %v", err)
	}
}

func (w *World) inheritAuthority(p *Proc, s *Session, name string) error {
	most, began := w.patience(), time.Now()
	ctx, cancel := p.Within(p.ctx, 8*most)
	defer cancel()
	x, err := s.Open(ctx, name)
	if err != nil {
		return err
	}
	var l *authority.Leader
	if err := patiently(func() error { l, err = x.Lead(ctx); return err }); err != nil {
		return err
	}
	h := x.Led(l)
	if took := time.Since(began); took > most {
		return fmt.Errorf("led only %v after the faults ended, want at most %v", took, most)
	}
	for try := 0; ; try++ { // what is pending needs a list and a write
		err := w.pending(name)
		if err == nil {
			break
		}
		if try == 4*folds || !p.Sleep(ctx, w.Plan.TTL/4) {
			return err
		}
	}
	if err := w.settleAll(ctx, x, l); err != nil {
		return err
	}
	w.oracle.count("authorities inherited")
	return h.StepDown(ctx)
}

// folds is within how many TTLs a report is in the head where nothing goes wrong:
// while listings hang now and then, a few more.
const folds = 12

// pending says that a report stands that the head does not show.
func (w *World) pending(name string) error {
	w.oracle.mu.Lock()
	defer w.oracle.mu.Unlock()
	as := w.oracle.authorities[name]
	for report := range as.written {
		place := fmt.Sprintf("report/%s/%016d-%016d", store.EncodeName(report.Node), report.Term, report.Request)
		var p recovery.Pending
		if as.objects[place] == nil || record.Decode("", as.objects[place], &p) != nil {
			continue
		}
		if _, known := as.head.FateOf(p.Report); !known {
			return fmt.Errorf("the report %d of node %s is forgotten", report.Request, report.Node)
		}
	}
	return nil
}

// settleAll decides in the chains that always may, ends all faults, and audits.
func (w *World) settleAll(ctx context.Context, x *Authority, l *authority.Leader) error {
	var res checkpoint.Result
	w.oracle.mu.Lock()
	at := x.state().after()
	w.oracle.mu.Unlock()
	err := patiently(func() (err error) {
		res, err = x.Checkpoints.Abort(ctx, l.Proof(), at, newFence(0))
		return err
	})
	if err != nil {
		return fmt.Errorf("an abort: %w", err)
	}
	if !res.Stands() {
		return fmt.Errorf("an abort: %v", res.Answer)
	}
	err = patiently(func() error {
		round, err := x.Recoveries.Begin(ctx, l.Proof(), nil)
		if err != nil {
			return err
		}
		s, err := x.Reader().Snapshot(ctx)
		if err != nil {
			return err
		}
		faults, _ := s.Faults()
		var stopped []authority.Stopped
		for _, f := range faults {
			stopped = append(stopped, authority.Stopped{Node: f.Proof.Node, Incarnation: f.Proof.Incarnation})
		}
		released, err := x.Release(ctx, l.Proof(), round, stopped)
		if err == nil && !released.Stands() {
			err = fmt.Errorf("the release: %v", released.Answer)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("a round: %w", err)
	}
	return w.sound(ctx, x)
}

// sound audits an authority and judges that it has what was admitted (R35).
func (w *World) sound(ctx context.Context, x *Authority) error {
	var report authority.AuditReport
	err := patiently(func() (err error) { report, err = x.Reader().Audit(ctx); return err })
	if err != nil {
		return fmt.Errorf("the audit: %w", err)
	}
	o := w.oracle
	o.mu.Lock()
	defer o.mu.Unlock()
	want := 0
	for _, m := range x.state().chains {
		want += len(m.stands())
	}
	if len(report.Breaks) > 0 || report.Entries != want {
		return fmt.Errorf("the audit read %d entries, and %d stand", report.Entries, want)
	}
	o.stats["sound at the end"]++
	return nil
}

// patiently calls f up to 25 times: every second listing may hang.
func patiently(f func() error) error { return again(func() error { return again(f) }) }
