package main

import (
	"time"

	"github.com/tenure-project/tenure"
)

// nodeJSON is one node, for node status and node ls.
type nodeJSON struct {
	Schema      int              `json:"schema"`
	Namespace   string           `json:"namespace"`
	Node        string           `json:"node"`
	State       string           `json:"state"`
	Incarnation string           `json:"incarnation"`
	Term        uint64           `json:"term"`
	Counter     uint64           `json:"counter"`
	Sequence    uint64           `json:"sequence"`
	Since       *time.Time       `json:"since"`
	Expires     *time.Time       `json:"expires"`
	TTLMS       int64            `json:"ttl_ms"`
	Note        string           `json:"note"`
	Unsealed    bool             `json:"unsealed"`
	Revocations []revocationJSON `json:"revocations"`
	FreeAfterMS int64            `json:"free_after_ms"`
	Proof       string           `json:"proof"`
	Ended       *endedJSON       `json:"ended"`
	Observed    *observedJSON    `json:"observed"`
}

// revocationJSON is one lease that was taken from a session.
type revocationJSON struct {
	Lease string `json:"lease"`
	Token uint64 `json:"token"`
}

func newNodeJSON(namespace string, s tenure.NodeStatus, seen *observed) nodeJSON {
	j := nodeJSON{
		Schema: schema, Namespace: namespace, Node: s.Node, State: nodeState(s), Incarnation: s.Incarnation,
		Term: s.Term, Counter: s.Counter, Sequence: s.Sequence, Since: instant(s.Since), Expires: instant(s.Expires),
		TTLMS: s.TTL.Milliseconds(), Note: s.Note, Unsealed: s.Unsealed, Revocations: []revocationJSON{},
		FreeAfterMS: s.FreeAfter.Milliseconds(), Proof: s.Proof,
	}
	for _, v := range s.Revocations {
		j.Revocations = append(j.Revocations, revocationJSON{v.Lease, v.Token})
	}
	if s.State == tenure.Released {
		j.Ended = &endedJSON{How: s.EndedHow, Why: s.EndedWhy, By: s.EndedBy}
	}
	if seen != nil {
		j.Observed = newObservedJSON(seen)
	}
	return j
}

// certificateJSON is one certificate, for node history, fence and
// check-certificate.
type certificateJSON struct {
	Schema      int        `json:"schema"`
	Namespace   string     `json:"namespace"`
	Node        string     `json:"node"`
	Predecessor sideJSON   `json:"predecessor"`
	Successor   sideJSON   `json:"successor"`
	Revoker     bool       `json:"revoker"`
	How         string     `json:"how"`
	Why         string     `json:"why"`
	By          string     `json:"by"`
	At          *time.Time `json:"at"`
	WaitMS      int64      `json:"wait_ms"`
	Certificate string     `json:"certificate"`
}

// sideJSON is one of the two starts that a certificate names.
type sideJSON struct {
	Incarnation string `json:"incarnation"`
	Term        uint64 `json:"term"`
}

func newCertificateJSON(namespace string, c tenure.Certificate) certificateJSON {
	return certificateJSON{
		Schema: schema, Namespace: namespace, Node: c.Node,
		Predecessor: sideJSON{c.Predecessor.Incarnation, c.Predecessor.Term},
		Successor:   sideJSON{c.Successor.Incarnation, c.Successor.Term},
		Revoker:     c.Revoker, How: c.How, Why: c.Why, By: c.By, At: instant(c.At),
		WaitMS: c.Wait.Milliseconds(), Certificate: string(c.Body),
	}
}

// currentJSON is the answer of node verify.
type currentJSON struct {
	Schema      int    `json:"schema"`
	Namespace   string `json:"namespace"`
	Node        string `json:"node"`
	Incarnation string `json:"incarnation"`
	Term        uint64 `json:"term"`
	Current     bool   `json:"current"`
}

// sessionJSON is the session that a lease rests on.
type sessionJSON struct {
	Node        string `json:"node"`
	Incarnation string `json:"incarnation"`
	Term        uint64 `json:"term"`
	State       string `json:"state"`
	How         string `json:"how"`
	Sequence    uint64 `json:"sequence"`
	NodeTTLMS   int64  `json:"node_ttl_ms"`
}
