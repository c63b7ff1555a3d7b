package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/authority"
)

// The states of an authority.
const (
	stateLed    = "led"
	stateVacant = "vacant"
	stateAbsent = "absent"
)

// leaderJSON is the shape of leader status --json.
type leaderJSON struct {
	Schema      int         `json:"schema"`
	Namespace   string      `json:"namespace"`
	Authority   string      `json:"authority"`
	State       string      `json:"state"`
	Node        string      `json:"node"`
	Incarnation string      `json:"incarnation"`
	Term        uint64      `json:"term"`
	Token       uint64      `json:"token"`
	Counter     uint64      `json:"counter"`
	Sequence    uint64      `json:"sequence"`
	Renewal     uint64      `json:"renewal"`
	Since       *time.Time  `json:"since"`
	TTLMS       int64       `json:"ttl_ms"`
	Note        string      `json:"note"`
	Session     string      `json:"session"`
	Ended       *endedJSON  `json:"ended"`
	Chains      []chainJSON `json:"chains"`
	Faults      int         `json:"faults"`
	Pending     *int        `json:"pending"`
	Round       uint64      `json:"round"`
	Past        []pastJSON  `json:"past"`
	Dropped     uint64      `json:"dropped"`
}

// chainJSON is one chain of an authority.
type chainJSON struct {
	Chain    string `json:"chain"`
	Live     uint64 `json:"live"`
	Key      uint64 `json:"key"`
	Sequence uint64 `json:"sequence"`
	Floor    uint64 `json:"floor"`
	Marks    uint64 `json:"marks"`
	Horizon  uint64 `json:"horizon"`
}

// pastJSON is one past leadership.
type pastJSON struct {
	Node        string     `json:"node"`
	Incarnation string     `json:"incarnation"`
	Term        uint64     `json:"term"`
	Token       uint64     `json:"token"`
	First       uint64     `json:"first"`
	Last        uint64     `json:"last"`
	Since       *time.Time `json:"since"`
	Until       *time.Time `json:"until"`
	How         string     `json:"how"`
	Why         string     `json:"why"`
	By          string     `json:"by"`
}

func newLeaderStatusCmd(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status NAME",
		Short: "Show one authority: who leads, and what stands in its log",
		Long: `Show one authority. A head that names a leader does not prove that it lives;
what the store knows of its process is shown beside it.`,
		Example: `  tenure leader status scheduler
  tenure leader status scheduler --json | jq .token`,
		Args:              args(1, "NAME"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.action(func(ctx context.Context, _ *cobra.Command, args []string) error {
			name, err := authorityArg(args)
			if err != nil {
				return err
			}
			return a.withReader(ctx, func(c *tenure.Client) error { return a.leaderStatus(ctx, c, name, asJSON) })
		}),
	}
	addJSONFlag(cmd, &asJSON)
	addTimeoutFlag(cmd, timeoutUsage)
	return cmd
}

func (a *app) leaderStatus(ctx context.Context, c *tenure.Client, name string, asJSON bool) error {
	r, err := authority.Read(ctx, c, name)
	if err != nil {
		return err
	}
	s, err := r.Snapshot(ctx)
	if errors.Is(err, tenure.ErrNotFound) {
		j := leaderJSON{Schema: schema, Namespace: c.Namespace(), Authority: name, State: stateAbsent, Chains: []chainJSON{}, Past: []pastJSON{}}
		if asJSON {
			return a.json(j)
		}
		a.printLeader(j)
		return nil
	}
	if err != nil {
		return err
	}
	j := newLeaderJSON(c.Namespace(), s)
	if p, led := s.Leader(); led {
		j.Session, err = leaderSession(ctx, c, p)
	}
	pending, unread := r.Pending(ctx)
	n := len(pending)
	j.Pending, err = &n, errors.Join(err, unread)
	if asJSON {
		return errors.Join(a.json(j), err)
	}
	a.printLeader(j)
	return err
}

// newLeaderJSON is what the head says; Session is not asked for.
func newLeaderJSON(namespace string, s authority.Snapshot) leaderJSON {
	j := leaderJSON{
		Schema: schema, Namespace: namespace, Authority: s.Authority(), State: stateVacant, Token: s.Token(), Counter: s.Counter(),
		Sequence: s.Sequence(), Renewal: s.Renewal(), Since: instant(s.Since()), TTLMS: s.TTL().Milliseconds(), Note: s.Note(),
		Chains: []chainJSON{}, Past: []pastJSON{},
	}
	past, dropped := s.Past()
	for _, l := range past {
		j.Past = append(j.Past, pastJSON{
			Node: l.Proof.Node, Incarnation: l.Proof.Incarnation, Term: l.Proof.Term, Token: l.Proof.Token, First: l.First, Last: l.Last,
			Since: instant(l.Since), Until: instant(l.Until), How: l.How, Why: l.Why, By: l.By,
		})
	}
	j.Dropped = dropped
	for _, chain := range authority.Chains() {
		if x, ok := s.Chain(chain); ok {
			j.Chains = append(j.Chains, chainJSON{chain, x.Live, x.Head.Key, x.Head.Sequence, x.Floor, x.Marks, x.Horizon})
		}
	}
	all, _ := s.Faults()
	for _, f := range all {
		if f.Active {
			j.Faults++
		}
	}
	if round, ok := s.Round(); ok {
		j.Round = round.Generation
	}
	p, led := s.Leader()
	if !led {
		if n := len(past); n > 0 {
			last := past[n-1]
			j.Node, j.Incarnation, j.Term = last.Proof.Node, last.Proof.Incarnation, last.Proof.Term
			j.Ended, j.Since = &endedJSON{How: last.How, Why: last.Why, By: last.By}, instant(last.Until)
		}
		return j
	}
	j.State, j.Node, j.Incarnation, j.Term = stateLed, p.Node, p.Incarnation, p.Term
	return j
}

// leaderSession is what the store knows of the leader's process: "current", how it
// ended, or "unknown".
func leaderSession(ctx context.Context, c *tenure.Client, p tenure.Proof) (string, error) {
	over, how, err := c.SessionOver(ctx, p)
	switch {
	case errors.Is(err, tenure.ErrMissingEvidence):
		return "unknown", nil
	case err != nil:
		return "unknown", err
	case !over:
		return "current", nil
	case how == "":
		return "over", nil
	}
	return how, nil
}

func (a *app) printLeader(j leaderJSON) {
	var t table
	t.row("authority", showName(j.Authority))
	t.row("namespace", showName(j.Namespace))
	if j.State == stateAbsent {
		t.row("state", "absent: nobody ever led it here")
		t.row("next", "free: the first candidate leads at once")
		t.print(a.out)
		return
	}
	t.row("state", j.State)
	t.row("token", leaderTokenLine(j))
	t.row("node", fmt.Sprintf("%s (incarnation %s, term %d)", showName(j.Node), printable(j.Incarnation), j.Term))
	if j.Ended != nil {
		t.row("ended", howLine(j.Ended.How, j.Ended.By, j.Ended.Why))
	}
	if j.Since != nil && j.State == stateLed {
		t.row("since", since(*j.Since, "by the leader's clock"))
	} else if j.Since != nil {
		t.row("since", since(*j.Since, "by the clock of whoever wrote it"))
	}
	t.row("ttl", (time.Duration(j.TTLMS) * time.Millisecond).String())
	t.row("sequence", fmt.Sprintf("%d: changes of all kinds", j.Sequence))
	if j.Note != "" {
		t.row("note", showText(j.Note))
	}
	if j.State == stateLed {
		t.row("process", processLine(j.Session))
	}
	for _, c := range j.Chains {
		t.row(c.Chain, chainLine(c))
	}
	if j.Faults > 0 || j.Round > 0 {
		t.row("faults", recoveryLine(j))
	}
	if j.Pending != nil && *j.Pending > 0 {
		t.row("reports", fmt.Sprintf("%s of faults pending: the next renewal of a leader, or of the reporter's own after a TTL, shows them", counted(*j.Pending, "report")))
	}
	label := "past"
	for _, l := range j.pastShown() {
		until := "-"
		if l.Until != nil {
			until = stamp(*l.Until)
		}
		t.row(label, fmt.Sprintf("token %d, node %s, until %s: %s", l.Token, showName(l.Node), until, howLine(l.How, l.By, l.Why)))
		label = ""
	}
	t.row("next", leaderNextLine(j))
	t.print(a.out)
	if j.State == stateLed {
		a.printf("\nThe head names a leader; that does not prove that it lives. `tenure node status\n" +
			"NODE --observe` watches for a sign of life of its process; under `tenure leader\n" +
			"elect` that is the supervisor, not the command.\n")
	}
}

// pastShown are the last leaderships before the one that is shown, newest first: three
// tell a person whether it goes to and fro.
func (j leaderJSON) pastShown() (some []pastJSON) {
	past := slices.Clone(j.Past)
	if j.State == stateVacant && len(past) > 0 {
		past = past[:len(past)-1]
	}
	slices.Reverse(past)
	return past[:min(3, len(past))]
}

func leaderTokenLine(j leaderJSON) string {
	if j.Counter > j.Token {
		return fmt.Sprintf("%d (the next one is %d or higher)", j.Token, j.Counter+1)
	}
	return fmt.Sprint(j.Token)
}

func processLine(session string) string {
	switch session {
	case "current":
		return "its node's record names it"
	case "unknown":
		return "the store does not tell of it"
	case "over":
		return "over: its node has a later term"
	}
	return "over: its session was " + session
}

func chainLine(c chainJSON) string {
	line := fmt.Sprintf("%d live, the newest of key %d at sequence %d", c.Live, c.Key, c.Sequence)
	if c.Floor > 0 {
		line += fmt.Sprintf(", floor %d", c.Floor)
	}
	if c.Horizon > 0 {
		line += fmt.Sprintf(", horizon %d", c.Horizon)
	}
	return line
}

func recoveryLine(j leaderJSON) string {
	line := counted(j.Faults, "active fault")
	if j.Round > 0 {
		line += fmt.Sprintf(", round of generation %d under way", j.Round)
	}
	return line
}

// leaderNextLine is what the next candidate meets.
func leaderNextLine(j leaderJSON) string {
	ttl := time.Duration(j.TTLMS) * time.Millisecond
	switch {
	case j.State == stateLed && j.Counter > j.Token:
		return "its leader begins again with a new token: a jump raised the counter"
	case j.State == stateLed && j.Session != "current" && j.Session != "unknown":
		return "its process is over: the next candidate leads as soon as it has seen that"
	case j.State == stateLed:
		return fmt.Sprintf("another candidate leads after seeing no sign of life for %v, or once the process is proven to be over", ttl)
	case j.Ended != nil && j.Ended.How == "forced":
		return fmt.Sprintf("not free yet: the next candidate first watches it for %v, in case the last leader lives", ttl)
	case j.Ended != nil && j.Ended.How == "vouched":
		return fmt.Sprintf("free at once: that the last leader is gone rests on the word of %s", showText(j.Ended.By))
	}
	return "free: the next candidate leads at once"
}
