package main

import (
	"encoding/json"
	"time"

	"github.com/tenure-project/tenure"
)

// schema numbers every JSON shape that the program prints. It rises when a field
// changes its meaning or goes away; new fields may come at any time. Every field
// is always there: a text is "" and an instant is null where there is none.
const schema = 1

// statusJSON is one lease, for status and ls.
type statusJSON struct {
	Schema      int           `json:"schema"`
	Namespace   string        `json:"namespace"`
	Lease       string        `json:"lease"`
	Kind        string        `json:"kind"`
	State       string        `json:"state"`
	Token       uint64        `json:"token"`
	Counter     uint64        `json:"counter"`
	Owner       string        `json:"owner"`
	Label       string        `json:"label"`
	Note        string        `json:"note"`
	Since       *time.Time    `json:"since"`
	TTLMS       int64         `json:"ttl_ms"`
	Renewal     uint64        `json:"renewal"`
	Successor   string        `json:"successor"`
	FreeAfterMS int64         `json:"free_after_ms"`
	Proof       string        `json:"proof"`
	Ended       *endedJSON    `json:"ended"`
	Observed    *observedJSON `json:"observed"`
	Session     *sessionJSON  `json:"session"`
}

// endedJSON is how the last tenure ended.
type endedJSON struct {
	How string `json:"how"`
	Why string `json:"why"`
	By  string `json:"by"`
}

// observedJSON is what this command itself saw of a held lease.
type observedJSON struct {
	ForMS    int64 `json:"for_ms"`
	SilentMS int64 `json:"silent_ms"`
	Alive    bool  `json:"alive"`
}

func newStatusJSON(namespace string, s tenure.Status, seen *observed, under *session) statusJSON {
	j := statusJSON{
		Schema: schema, Namespace: namespace, Lease: s.Name, Kind: s.Kind, State: string(s.State),
		Token: s.Token, Counter: s.Counter, Owner: s.Owner, Label: s.Label, Note: s.Note,
		Since: instant(s.Since), TTLMS: s.TTL.Milliseconds(), Renewal: s.Renewal, Successor: s.Successor,
		FreeAfterMS: s.FreeAfter.Milliseconds(), Proof: s.Proof,
	}
	if s.State == tenure.Released {
		j.Ended = &endedJSON{How: s.EndedHow, Why: s.EndedWhy, By: s.EndedBy}
	}
	if seen != nil {
		j.Observed = newObservedJSON(seen)
	}
	if under != nil {
		j.Session = newSessionJSON(under)
	}
	return j
}

func newObservedJSON(o *observed) *observedJSON {
	return &observedJSON{ForMS: o.total.Milliseconds(), SilentMS: o.silent.Milliseconds(), Alive: o.alive}
}

// tenureJSON is one ownership, for history.
type tenureJSON struct {
	Schema    int        `json:"schema"`
	Namespace string     `json:"namespace"`
	Lease     string     `json:"lease"`
	Token     uint64     `json:"token"`
	Owner     string     `json:"owner"`
	Label     string     `json:"label"`
	Since     *time.Time `json:"since"`
	Until     *time.Time `json:"until"`
	How       string     `json:"how"`
	Why       string     `json:"why"`
	By        string     `json:"by"`
	Dropped   uint64     `json:"dropped"`
}

func newTenureJSON(namespace, lease string, t tenure.Tenure, dropped uint64) tenureJSON {
	return tenureJSON{
		Schema: schema, Namespace: namespace, Lease: lease, Token: t.Token, Owner: t.Owner, Label: t.Label,
		Since: instant(t.Since), Until: instant(t.Until), How: t.How, Why: t.Why, By: t.By, Dropped: dropped,
	}
}

// changeJSON is one transition, for watch.
type changeJSON struct {
	Schema    int        `json:"schema"`
	Namespace string     `json:"namespace"`
	Lease     string     `json:"lease"`
	State     string     `json:"state"`
	Token     uint64     `json:"token"`
	Owner     string     `json:"owner"`
	Label     string     `json:"label"`
	Since     *time.Time `json:"since"`
	Until     *time.Time `json:"until"`
	How       string     `json:"how"`
	Why       string     `json:"why"`
	By        string     `json:"by"`
	Missed    uint64     `json:"missed"`
}

func newChangeJSON(namespace string, c tenure.Change) changeJSON {
	t := c.Tenure
	return changeJSON{
		Schema: schema, Namespace: namespace, Lease: c.Name, State: string(c.State), Token: t.Token, Owner: t.Owner,
		Label: t.Label, Since: instant(t.Since), Until: instant(t.Until), How: t.How, Why: t.Why, By: t.By, Missed: c.Missed,
	}
}

// checkJSON is the answer of check.
type checkJSON struct {
	Schema    int    `json:"schema"`
	Namespace string `json:"namespace"`
	Lease     string `json:"lease"`
	Token     uint64 `json:"token"`
	Current   bool   `json:"current"`
	State     string `json:"state"`
	Now       uint64 `json:"current_token"`
}

// instant is t in UTC, null where there is none. A record holds milliseconds.
func instant(t time.Time) *time.Time {
	if t.IsZero() || t.UnixMilli() == 0 {
		return nil
	}
	u := t.UTC()
	return &u
}

// json prints v as one line.
func (a *app) json(v any) error {
	e := json.NewEncoder(a.out)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
