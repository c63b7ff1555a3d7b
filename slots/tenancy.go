package slots

import (
	"sync"

	"github.com/tenure-project/tenure/internal/deadline"
	"github.com/tenure-project/tenure/store"
)

// A row of a session names the session and the owner, not the host in the process: a second
// host of both would be answered that the rows of the first are its own, and serve them
// beside it; and a release by the first, perhaps one that goes on in the background, would
// free what the second serves. So there is one host of a session and an owner in a table
// until nothing of it can write any more (LS8).

// tenant names what one host acts for.
type tenant struct {
	session      *deadline.Deadline // there is one of each session
	table, owner string
}

var tenants sync.Map // of tenant: those that a host of this process acts for

// tenancy is a host's place among tenants. The zero value is none.
type tenancy struct {
	mu      sync.Mutex
	who     tenant
	left    chan struct{} // closed when the place is another's to take; nil: there was none
	gone    bool
	ended   bool // the host is over
	settles int  // releases that are under way
}

// enter takes the place, or returns ErrUnavailable while another host has it.
func (t *tenancy) enter(h *Host) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	who := tenant{session: h.session.Deadline, table: h.tableKey, owner: h.me.Owner}
	if _, taken := tenants.LoadOrStore(who, true); taken {
		return store.Errorf(store.ErrUnavailable, h.identity(), "host", h.me.Owner,
			"another host of this session acts for %q in table %q, or what it had is not released yet: one at a time does", h.me.Owner, h.name)
	}
	t.who, t.left = who, make(chan struct{})
	return nil
}

// settling says that a release goes on. done must be called when it is over, but for one
// that ends with the session, after which nothing can be written in its name.
func (t *tenancy) settling() (done func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.settles++
	return sync.OnceFunc(func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.settles--
		t.leaveLocked(t.ended && t.settles == 0)
	})
}

// over says that the host is over.
func (t *tenancy) over() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	t.leaveLocked(t.settles == 0)
}

// leave gives the place up, because the session is over.
func (t *tenancy) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leaveLocked(true)
}

func (t *tenancy) leaveLocked(may bool) {
	if t.left == nil || t.gone || !may {
		return
	}
	t.gone = true
	tenants.Delete(t.who)
	close(t.left)
}

// wait waits until the place was given up.
func (t *tenancy) wait() {
	t.mu.Lock()
	left := t.left
	t.mu.Unlock()
	if left != nil {
		<-left
	}
}
