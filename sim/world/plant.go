package world

import (
	"context"
	"fmt"
	"time"

	"github.com/tenure-project/tenure/internal/core/identity"
	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/store"
)

// PlantNode puts a node's record and sealed certificates there, as the past of the
// world left them.
func (w *World) PlantNode(r *identity.Record, sealed ...*identity.Certificate) {
	o := w.oracle
	o.mu.Lock()
	defer o.mu.Unlock()
	ns := o.nodes[r.Node]
	for _, c := range sealed {
		body, err := c.Encode()
		for _, name := range c.Names() {
			w.plant(ns.prefix+name, body, err)
			ns.made[name], ns.sealed[name] = string(body), string(body)
		}
		p := c.Predecessor
		ns.starts[p.Incarnation] = &nodeStart{Owner: identity.Owner{Incarnation: p.Incarnation, Term: p.Term}, how: c.How, ended: time.Now(), cert: c}
	}
	body, err := r.Encode()
	w.plant(store.Key(Namespace, "identity", r.Node), body, err)
	last := &nodeStart{Owner: r.Last(), ended: time.Now()}
	if !r.Held() {
		last.how = r.Ended.How
	}
	ns.starts[last.Incarnation], ns.rec, ns.landed = last, r, time.Now()
}

// PlantLease puts a lease's record there, as the past of the world left it.
func (w *World) PlantLease(r *lease.Record) {
	w.oracle.mu.Lock()
	defer w.oracle.mu.Unlock()
	body, err := r.Encode()
	w.plant(store.Key(Namespace, "lease", r.Resource), body, err)
	ls := w.oracle.byName[r.Resource]
	ls.rec, ls.landed, ls.pruned = r, time.Now(), true // its past is not known
}

func (w *World) plant(key string, body []byte, err error) {
	if err == nil {
		_, err = w.place.mem.Create(context.Background(), key, body)
	}
	if err != nil {
		panic(fmt.Sprintf("cannot plant %s: %v", key, err))
	}
}

// Sealed is how many names of certificates of a node stand.
func (w *World) Sealed(node string) int {
	w.oracle.mu.Lock()
	defer w.oracle.mu.Unlock()
	return len(w.oracle.nodes[node].sealed)
}

// Count is how often something happened, as a Verdict's Stats tell it.
func (w *World) Count(what string) int {
	w.oracle.mu.Lock()
	defer w.oracle.mu.Unlock()
	return w.oracle.stats[what]
}
