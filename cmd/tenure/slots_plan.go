package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/internal/core/slots/balance"
	"github.com/tenure-project/tenure/slots"
	"github.com/tenure-project/tenure/store"
)

func newSlotsPlanCmd(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "plan TABLE",
		Short: "Show where the shards of a table should be, and why",
		Long: `Show the hosts that announced themselves, which host each shard is meant for,
what a balancer with the default limits would change now if every host had
settled, and why. Nothing is written. The balancer itself is one of the
balanced hosts of the table; its own limits may be other ones.

A plan can misplace a shard; it cannot make two hosts serve one: who owns what
is shown by ` + "`tenure slots ls`" + `.`,
		Example: `  tenure slots plan orders
  tenure slots plan orders --json | jq -r '.shards[] | select(.owner != .target)'`,
		Args:              args(1, "TABLE"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.action(func(ctx context.Context, _ *cobra.Command, args []string) error {
			name, err := tableArg(args)
			if err != nil {
				return err
			}
			return a.withReader(ctx, func(c *tenure.Client) error {
				p, err := readPlanned(ctx, c, name)
				switch {
				case err != nil:
					return err
				case asJSON:
					return a.json(p.json(c.Namespace()))
				}
				a.printPlan(c.Namespace(), p)
				return nil
			})
		}),
	}
	addJSONFlag(cmd, &asJSON)
	addTimeoutFlag(cmd, timeoutUsage)
	return cmd
}

// planned is what a table's plan says now, and what would follow it.
type planned struct {
	table string
	plan  *slots.Plan
	next  *slots.BalancePlan
	lead  tenure.Status // the lease of whoever balances
}

// settled is the policy of a preview: hosts that have been there for long enough.
var settled = slots.Balance{Settle: -1}

func readPlanned(ctx context.Context, c *tenure.Client, name string) (*planned, error) {
	t, err := openTable(ctx, c, name)
	if err != nil {
		return nil, err
	}
	p := &planned{table: name}
	if p.plan, err = t.Plan(ctx); err != nil {
		return nil, err
	}
	if p.plan == nil {
		return nil, noShards(name)
	}
	if p.next, err = t.Preview(ctx, settled); err != nil {
		return nil, err
	}
	p.lead, err = c.Status(ctx, slots.LeaseName(name))
	return p, err
}

func noShards(name string) error {
	return notFound("table %s has no shards, so it has no plan: `tenure slots init %s --shards N` cuts them", showName(name), showName(name))
}

// balancer says who plans.
func (p *planned) balancer() string {
	if p.lead.State != tenure.Held {
		return "nobody: no balanced host runs, or none leads yet"
	}
	return fmt.Sprintf("%s with token %d, since %s", showText(p.lead.Label), p.lead.Token, stamp(p.lead.Since))
}

func (a *app) printPlan(namespace string, p *planned) {
	var t table
	t.row("table", showName(p.table))
	t.row("namespace", showName(namespace))
	t.row("balancer", p.balancer())
	t.row("plan", fmt.Sprintf("number %d, of %s", p.plan.Seq, plural(len(p.plan.Shards), "shard")))
	t.print(a.out)
	if len(p.next.Hosts) > 0 {
		var hosts table
		hosts.row("HOST", "WEIGHT", "CAPACITY", "HOLDS", "MEANT", "SHOULD", "STATE")
		meant := map[string]int{}
		for _, s := range p.plan.Shards {
			meant[s.Target]++
		}
		for _, h := range p.next.Hosts {
			capacity, state := "-", "takes shards"
			if h.Capacity > 0 {
				capacity = fmt.Sprint(h.Capacity)
			}
			if !h.Takes {
				state = "takes none: it leaves, has weight 0, or is over"
			}
			hosts.row(showName(h.ID), fmt.Sprint(h.Weight), capacity, fmt.Sprint(h.Holds), fmt.Sprint(meant[h.ID]), fmt.Sprint(h.Wanted), state)
		}
		a.printf("\n")
		hosts.print(a.out)
	}
	a.printf("\n")
	moves := p.moves()
	for _, m := range moves {
		a.printf("%s\n", m)
	}
	if len(moves) == 0 {
		a.printf("nothing to do: every shard is with the host that it is meant for\n")
	}
	for _, q := range p.next.Problems {
		a.printf("problem: %s\n", problemText(q))
	}
}

// move is what is to become of shards that are all in the same case.
type move struct {
	owner, target, wanted, why, wait string
	shards                           []slots.Range
}

// moves groups the rows of the plan that are not where they should be.
func (p *planned) moves() []move {
	var all []move
	at := map[string]int{}
	for _, r := range p.next.Rows {
		if r.Owner == r.Wanted && r.Owner == r.Target && r.Owner != "" {
			continue
		}
		m := move{owner: r.Owner, target: r.Target, wanted: r.Wanted, why: reasonText(r.Reason, r.Owner, r.Target)}
		switch {
		case r.Waiting():
			m.why, m.wait = reasonText(r.WantedReason, r.Owner, r.Wanted), waitText(r.Wait, r.Wanted)
		case !r.Changed() && r.Reason != balance.Unplaced:
			m.why = "the plan says so"
		}
		key := strings.Join([]string{m.owner, m.target, m.wanted, m.why, m.wait}, "\x00")
		i, known := at[key]
		if !known {
			i = len(all)
			at[key] = i
			all = append(all, m)
		}
		all[i].shards = append(all[i].shards, slots.Range(r.Range))
	}
	return all
}

// String is the move in words.
func (m move) String() string {
	var where []string
	for _, r := range m.shards[:min(3, len(m.shards))] {
		where = append(where, r.String())
	}
	text := plural(len(m.shards), "shard") + " (" + strings.Join(where, ", ")
	if n := len(m.shards) - len(where); n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	text += "): "
	to := m.wanted
	switch {
	case to == "":
		return text + "no host may have it"
	case m.owner == "":
		text += showName(to) + " is to claim"
	case m.owner == to:
		text += showName(to) + " keeps"
	default:
		text += showName(m.owner) + " is to hand over to " + showName(to)
	}
	text += ": " + m.why
	if m.wait != "" {
		text += "; waits " + m.wait
	}
	return text
}

// reasonText says in words why a shard that owner has is meant for target.
func reasonText(reason balance.Reason, owner, target string) string {
	switch reason {
	case balance.Ownerless:
		return "no live host holds it"
	case balance.Pin:
		return "it is pinned to " + showName(target)
	case balance.Leaving:
		return showName(owner) + " leaves"
	case balance.Capacity:
		return showName(owner) + " has more shards than its capacity"
	case balance.Balance:
		return showName(owner) + " has more than its share, or " + showName(target) + " less"
	case balance.Returned:
		return "a move was called off, and it stays where it is"
	case balance.Unplaced:
		return "no host may have it"
	}
	return "the plan says so"
}

// waitText says what a move waits for.
func waitText(wait balance.Wait, target string) string {
	switch wait {
	case balance.InFlight:
		return "until fewer hand-overs are under way"
	case balance.Window:
		return "until fewer moves for balance began within the last minute"
	case balance.Room:
		return "until another shard has left " + showName(target)
	}
	return wait.String()
}

func problemText(q balance.Problem) string {
	text := string(q.Kind)
	if q.Host != "" {
		text += ", host " + showName(q.Host)
	}
	return fmt.Sprintf("%s (%s, from %v on): %s", text, plural(q.Shards, "shard"), slots.Range(q.First), printable(q.Detail))
}

func newSlotsPinCmd(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "pin TABLE RANGE OWNER",
		Short: "Say which owner shall serve a shard, whatever the balancer would choose",
		Long: `Pin the shard RANGE to OWNER. The balancer moves it there as soon as its limits
allow; while that owner is not there, or takes no shards, others serve it. RANGE
is exactly a shard of the table.`,
		Example:           `  tenure slots pin orders 0-63 host-7`,
		Args:              args(3, "TABLE", "RANGE", "OWNER"),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	return a.pinning(cmd, &asJSON)
}

func newSlotsUnpinCmd(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:               "unpin TABLE RANGE",
		Short:             "Let the balancer choose again who serves a shard",
		Long:              `Take the pin of the shard RANGE away. Without a pin there is nothing to do.`,
		Example:           `  tenure slots unpin orders 0-63`,
		Args:              args(2, "TABLE", "RANGE"),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	return a.pinning(cmd, &asJSON)
}

// pinning completes pin and unpin.
func (a *app) pinning(cmd *cobra.Command, asJSON *bool) *cobra.Command {
	cmd.RunE = a.action(func(ctx context.Context, _ *cobra.Command, args []string) error {
		name, err := tableArg(args)
		if err != nil {
			return err
		}
		r, err := rangeArg(args[1])
		if err != nil {
			return err
		}
		owner := ""
		if len(args) > 2 {
			owner = args[2]
			if err := store.CheckName("owner", owner); err != nil {
				return err
			}
		}
		return a.withExisting(ctx, func(c *tenure.Client) error { return a.pin(ctx, c, name, r, owner, *asJSON) })
	})
	addJSONFlag(cmd, asJSON)
	addTimeoutFlag(cmd, timeoutUsage)
	return cmd
}

func (a *app) pin(ctx context.Context, c *tenure.Client, name string, r slots.Range, owner string, asJSON bool) error {
	t, err := openTable(ctx, c, name)
	if err != nil {
		return err
	}
	p, err := t.Pin(ctx, r, owner)
	switch {
	case errors.Is(err, tenure.ErrNotFound):
		return noShards(name)
	case errors.Is(err, tenure.ErrInvalid):
		return invalid("table %s: %s; `tenure slots plan %s --json` lists the shards", showName(name), plainCause(err), showName(name))
	case err != nil:
		return err
	}
	if asJSON {
		s := p.ShardOf(r.A)
		return a.json(pinJSON{Schema: schema, Namespace: c.Namespace(), Table: name, Range: r.String(), Pin: s.Pin, Target: s.Target, Sequence: p.Seq})
	}
	if owner == "" {
		a.printf("shard %v of table %s is not pinned\n", r, showName(name))
		return nil
	}
	a.printf("shard %v of table %s is pinned to %s\n", r, showName(name), showName(owner))
	return nil
}

// pinJSON is the answer of slots pin and unpin.
type pinJSON struct {
	Schema    int    `json:"schema"`
	Namespace string `json:"namespace"`
	Table     string `json:"table"`
	Range     string `json:"range"`
	Pin       string `json:"pin"`
	Target    string `json:"target"`
	Sequence  uint64 `json:"sequence"`
}

// slotPlanJSON is the answer of slots plan.
type slotPlanJSON struct {
	Schema    int             `json:"schema"`
	Namespace string          `json:"namespace"`
	Table     string          `json:"table"`
	Balancer  string          `json:"balancer"`
	Token     uint64          `json:"token"`
	Since     *time.Time      `json:"since"`
	Sequence  uint64          `json:"sequence"`
	Hosts     []planHostJSON  `json:"hosts"`
	Shards    []planShardJSON `json:"shards"`
	Problems  []problemJSON   `json:"problems"`
}

type planHostJSON struct {
	Host     string `json:"host"`
	Weight   int    `json:"weight"`
	Capacity int    `json:"capacity"`
	Takes    bool   `json:"takes"`
	Holds    int    `json:"holds"`
	Targets  int    `json:"targets"`
	Wanted   int    `json:"wanted"`
}

type planShardJSON struct {
	Range  string `json:"range"`
	Owner  string `json:"owner"`
	Pin    string `json:"pin"`
	Target string `json:"target"`
	Next   string `json:"next"`
	Wanted string `json:"wanted"`
	Reason string `json:"reason"`
	Wait   string `json:"wait"`
}

type problemJSON struct {
	Problem string `json:"problem"`
	Host    string `json:"host"`
	Count   int    `json:"count"`
	First   string `json:"first"`
	Detail  string `json:"detail"`
}

func (p *planned) json(namespace string) slotPlanJSON {
	j := slotPlanJSON{
		Schema: schema, Namespace: namespace, Table: p.table, Sequence: p.plan.Seq,
		Hosts: []planHostJSON{}, Shards: []planShardJSON{}, Problems: []problemJSON{},
	}
	if p.lead.State == tenure.Held {
		j.Balancer, j.Token, j.Since = p.lead.Label, p.lead.Token, instant(p.lead.Since)
	}
	for _, h := range p.next.Hosts {
		j.Hosts = append(j.Hosts, planHostJSON{Host: h.ID, Weight: h.Weight, Capacity: h.Capacity, Takes: h.Takes, Holds: h.Holds, Targets: h.Targets, Wanted: h.Wanted})
	}
	for _, r := range p.next.Rows {
		s := planShardJSON{Range: slots.Range(r.Range).String(), Owner: r.Owner, Target: r.Was, Next: r.Target, Wanted: r.Wanted, Reason: r.Reason.String(), Wait: r.Wait.String()}
		if r.Waiting() {
			s.Reason = r.WantedReason.String()
		}
		if known := p.plan.ShardOf(r.Range.A); known != nil {
			s.Pin = known.Pin
		}
		j.Shards = append(j.Shards, s)
	}
	for _, q := range p.next.Problems {
		j.Problems = append(j.Problems, problemJSON{Problem: string(q.Kind), Host: q.Host, Count: q.Shards, First: slots.Range(q.First).String(), Detail: q.Detail})
	}
	return j
}
