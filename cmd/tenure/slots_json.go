package main

import (
	"time"

	"github.com/tenure-project/tenure/slots"
)

// tableJSON is one table, for slots ls.
type tableJSON struct {
	Schema    int        `json:"schema"`
	Namespace string     `json:"namespace"`
	Table     string     `json:"table"`
	Form      string     `json:"form"`
	Created   *time.Time `json:"created"`
	Counter   uint64     `json:"counter"`
	Slots     int        `json:"slots"`
	Ranges    int        `json:"ranges"`
	Owners    int        `json:"owners"`
	Shards    int        `json:"shards"`
	Hosts     int        `json:"hosts"`
}

func newTableJSON(namespace string, v *slots.View) tableJSON {
	j := tableJSON{
		Schema: schema, Namespace: namespace, Table: v.Table, Form: string(v.Form), Created: instant(time.UnixMilli(v.CreatedMS)),
		Counter: v.Counter, Hosts: len(v.Hosts),
	}
	owners := map[string]bool{}
	for i := range v.Rows {
		if r := &v.Rows[i]; r.Held() {
			j.Slots += r.Range.Len()
			j.Ranges++
			owners[r.Host.Owner] = true
		}
	}
	j.Owners = len(owners)
	if v.Plan != nil {
		j.Shards = len(v.Plan.Shards)
	}
	return j
}

// The states of a range.
const (
	rangeHeld    = "held"
	rangeFree    = "free"
	rangeKept    = "kept"    // for a successor
	rangeWatched = "watched" // after a forced end
)

func rangeState(r *slots.Row) string {
	switch {
	case r.Held():
		return rangeHeld
	case r.Freed.SupersededTTLMS > 0:
		return rangeWatched
	case r.Freed.Successor != "":
		return rangeKept
	}
	return rangeFree
}

// rowJSON is one range, for slots ls TABLE, slots key and slots release. Of a free one,
// owner and the instants are those of the last owner.
type rowJSON struct {
	Schema      int           `json:"schema"`
	Namespace   string        `json:"namespace"`
	Table       string        `json:"table"`
	Range       string        `json:"range"`
	First       int           `json:"first"`
	Last        int           `json:"last"`
	State       string        `json:"state"`
	Owner       string        `json:"owner"`
	Addr        string        `json:"addr"`
	Epoch       uint64        `json:"epoch"`
	Kind        string        `json:"kind"`
	Incarnation string        `json:"incarnation"`
	Node        string        `json:"node"`
	Term        uint64        `json:"term"`
	Since       *time.Time    `json:"since"`
	TTLMS       int64         `json:"ttl_ms"`
	Renewal     uint64        `json:"renewal"`
	Volume      string        `json:"volume"`
	Successor   string        `json:"successor"`
	FreeAfterMS int64         `json:"free_after_ms"`
	Ended       *endedJSON    `json:"ended"`
	Observed    *observedJSON `json:"observed"`
}

func newRowJSON(namespace, table string, r *slots.Row, seen *observed) rowJSON {
	j := rowJSON{
		Schema: schema, Namespace: namespace, Table: table, Range: r.Range.String(), First: int(r.Range.A), Last: int(r.Range.B),
		State: rangeState(r), Owner: r.Owner(), Epoch: r.Epoch, Since: instant(time.UnixMilli(r.Since)), Renewal: r.Renewal,
	}
	if h := r.Host; h != nil {
		j.Addr, j.Kind, j.Incarnation, j.Node, j.Term, j.TTLMS = h.Addr, string(h.Kind), h.Incarnation, h.Node, h.Term, h.TTLMS
		if h.Volume != nil {
			j.Volume = h.Volume.ID
		}
	} else {
		f := r.Freed
		j.Since, j.Successor, j.FreeAfterMS = instant(time.UnixMilli(f.At)), f.Successor, max(f.HoldMS, f.SupersededTTLMS)
		j.Ended = &endedJSON{How: f.How, Why: f.Why, By: f.By}
	}
	if seen != nil {
		j.Observed = newObservedJSON(seen)
	}
	return j
}

// claimedJSON is one range that slots claim owned, in the file of --status-file.
type claimedJSON struct {
	Range string `json:"range"`
	Epoch uint64 `json:"epoch"`
}

// mapJSON is the answer of slots map.
type mapJSON struct {
	Schema    int         `json:"schema"`
	Namespace string      `json:"namespace"`
	Table     string      `json:"table"`
	At        *time.Time  `json:"at"`
	Counter   uint64      `json:"counter"`
	Held      int         `json:"held"`
	Free      int         `json:"free"`
	Kept      int         `json:"kept"`
	Watched   int         `json:"watched"`
	Owners    []shareJSON `json:"owners"`
}

// shareJSON is what one owner holds.
type shareJSON struct {
	Owner     string `json:"owner"`
	Addr      string `json:"addr"`
	Slots     int    `json:"slots"`
	Ranges    int    `json:"ranges"`
	LowEpoch  uint64 `json:"low_epoch"`
	HighEpoch uint64 `json:"high_epoch"`
}

// keyJSON is the answer of slots key.
type keyJSON struct {
	Schema int      `json:"schema"`
	Key    string   `json:"key"`
	Int    bool     `json:"int"`
	Slot   int      `json:"slot"`
	Table  string   `json:"table"`
	Row    *rowJSON `json:"row"`
}
