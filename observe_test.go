package tenure

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// recorder keeps what it observes.
type recorder struct {
	mu     sync.Mutex
	events []Event
}

func (r *recorder) Observe(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

func (r *recorder) take(kind EventKind) (out []Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if e.Kind == kind {
			out = append(out, e)
		}
	}
	return out
}

// An observer learns of every grant, renewal with its margin, failure, loss and
// release, each once, under the tenure that it belongs to.
//
// SPEC UI2
func TestObserver(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var rec recorder
		a := w.join(WithObserver(&rec))
		w.release(w.acquire(a, "job"))
		l := w.acquire(a, "job")
		time.Sleep(ttl + ttl/20)
		if n := len(rec.take(EventRenewed)); n < 5 || n > 6 {
			t.Errorf("%d renewals in a TTL", n)
		}
		for _, e := range rec.take(EventRenewed) {
			if e.Token != 2 || e.Margin < ttl/2 || e.Margin > ttl {
				t.Errorf("a renewal says %+v", e)
			}
		}
		a.die()
		<-l.Done()
		synctest.Wait()
		if got, lost := rec.take(EventAcquired), rec.take(EventLost); len(got) != 2 || len(lost) != 1 || lost[0].Token != 2 || lost[0].Err == nil {
			t.Errorf("acquired %+v, lost %+v", got, lost)
		}
		if n := len(rec.take(EventReleased)); n != 1 {
			t.Errorf("%d releases", n)
		}
		failed := rec.take(EventRenewFailed) // while it is going on, not only at its end
		if len(failed) == 0 || failed[0].Margin < ttl/4 || failed[0].Err == nil {
			t.Errorf("failures %+v", failed)
		}
		wantErr(t, l.Err(), ErrExpired, failed[len(failed)-1].Err)
	})
}
