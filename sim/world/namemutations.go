package world

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/tenure-project/tenure/internal/core/identity"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
)

// read is what p reads at key instead of body, and how it takes it.
func (m *Mutation) read(p *Proc, key string, body []byte) []byte {
	if m.hurry != nil && m.hurry(body) && !p.w.calmed.Load() {
		p.clk.shift(2 * p.w.Plan.TTL) // as if the wait were over
	}
	if m.mirage != nil {
		if other := m.mirage(p, key, body); other != nil {
			return other
		}
	}
	return body
}

func isCertificate(e effect) bool {
	return e.op == faultstore.OpCreate && strings.HasPrefix(e.key, store.Prefix(Namespace, "certificate"))
}

// nodeRecord is the record in a body for a key, nil if it is none of a node.
func nodeRecord(key string, body []byte) *identity.Record {
	if !strings.HasPrefix(key, store.Prefix(Namespace, "identity")) {
		return nil
	}
	name, _, err := store.DecodeName(key[strings.LastIndexByte(key, '/')+1:])
	if err != nil {
		return nil
	}
	r, _ := identity.Decode(key, name, body)
	return r
}

// brokenNames breaks what sessions rest on.
func brokenNames() []Mutation {
	all := []Mutation{
		{Name: "no certificate is sealed", Found: []string{"R21"}, forget: isCertificate},
		{Name: "certificates are sealed under one name only", Found: []string{"R21"}, forget: func(e effect) bool {
			return isCertificate(e) && strings.Contains(e.key, "/successor-")
		}},
		{Name: "nobody heals what a crash left unsealed", Found: []string{"R21"}, Prepare: noisy, forget: func(e effect) bool {
			c, err := identity.ParseCertificate(e.body)
			return isCertificate(e) && err == nil && e.from.began.Load() != c.Successor.Incarnation
		}},
		{Name: "a session's trust counts from the reply", Found: []string{"R18", "R22", "R24", "R1"}, late: time.Minute, onlyLate: "/identity/", blow: cut, Prepare: slow},
		{Name: "nobody waits after force", Found: []string{"R20", "R22"}, Prepare: noisy, hurry: func(body []byte) bool {
			return strings.Contains(string(body), `"superseded_ttl_ms"`) && strings.Contains(string(body), `"incarnation"`)
		}},
		{Name: "revokers are not marked", Found: []string{"R19"}, Prepare: noisy, twist: func(e effect) []byte {
			r := nodeRecord(e.key, e.body)
			if r == nil || r.Revoker == nil || r.Revoker.SupersededTTLMS != 0 {
				return nil
			}
			r.Revoker = nil
			body, _ := r.Encode()
			return body
		}},
		{Name: "the living read as released", Found: []string{"R19", "R20", "R22"}, Prepare: noisy, mirage: func(p *Proc, key string, body []byte) []byte {
			r := nodeRecord(key, body)
			if r == nil || !r.Held() || r.Revoker != nil || r.Incarnation == p.began.Load() || mix(p.seed, now())%10 != 0 {
				return nil
			}
			r, err := r.Release(r.Last(), identity.Renewal{Attempt: r.WriterAttempt})
			if err != nil {
				return nil
			}
			body, _ = r.Encode()
			return body
		}},
		{Name: "names are given up while they are in use", Found: []string{"R23", "R18"}, releases: true, Prepare: noisy},
		{Name: "certificates that are needed are removed", Found: []string{"R21"}, unseals: true, Prepare: noisy},
		{Name: "revocations are forgotten", Found: []string{"R26"}, Prepare: noisy, forget: func(e effect) bool {
			r := nodeRecord(e.key, e.body)
			return r != nil && len(r.Revocations) > 0 && r.WriterAttempt != r.HolderAttempt
		}},
		{Name: "renewals of sessions are forgotten", Found: []string{"R18", "R19", "R20", "R22", "R24", "R1", "R12"}, Prepare: noisy, forget: func(e effect) bool {
			r := nodeRecord(e.key, e.body)
			return r != nil && r.Sequence > 1 && r.HolderAttempt == r.WriterAttempt && r.Certificate == nil
		}},
		{Name: "a session's clock runs at half the rate", Found: []string{"R18", "R22", "R1"}, Prepare: noisy, clock: func(slot int, c *simClock) {
			if slot%2 == 1 {
				c.rate = 0.5
			}
		}},
		{Name: "a session's clock does not count suspend", Found: []string{"R18", "R22", "R1"}, blow: suspend, Prepare: noisy, clock: func(_ int, c *simClock) { c.deaf = true }},
		{Name: "the operator vouches for living sessions", Found: []string{"R18", "R22", "R1"}, liar: true, Prepare: noisy},
	}
	for i := range all {
		all[i].sessions = true
	}
	return all
}

// meddle releases names that are in use, or removes the evidence of present terms.
func (w *World) meddle(ctx context.Context) {
	r := dice(w.Plan.Seed, "meddle")
	for wait(ctx, about(r, w.Plan.TTL)) == nil {
		for _, name := range w.Plan.NodeNames() {
			if w.mutation.releases {
				w.giveAway(name)
			} else {
				w.unseal(name)
			}
		}
	}
}

// giveAway writes that the owner of a name gave it up.
func (w *World) giveAway(name string) {
	key := store.Key(Namespace, "identity", name)
	o, err := w.place.mem.Get(context.Background(), key, identity.MaxBody)
	if err != nil {
		return
	}
	rec := nodeRecord(key, o.Body)
	if rec == nil || !rec.Held() || rec.Revoker != nil {
		return
	}
	next, err := rec.Release(rec.Last(), identity.Renewal{Attempt: rec.WriterAttempt})
	if err != nil {
		return
	}
	body, _ := next.Encode()
	w.trace.add("world", "%s is given up for its owner", name)
	w.place.restore(key, body)
}

// unseal removes what stands of the certificates of a name.
func (w *World) unseal(name string) {
	ctx, prefix := context.Background(), store.Key(Namespace, "certificate", name)+"/"
	keys, err := w.place.list(ctx, w.place.mem, prefix, "")
	if err != nil {
		return
	}
	for _, key := range slices.Backward(keys) {
		_, _ = w.place.apply(effect{op: faultstore.OpDelete, key: key, do: func(ctx context.Context) (store.Version, error) {
			return "", w.place.mem.Delete(ctx, key)
		}})
	}
}
