package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/authority"
	"github.com/tenure-project/tenure/internal/core/authority/assignment"
	"github.com/tenure-project/tenure/internal/core/authority/catalog"
	"github.com/tenure-project/tenure/internal/core/authority/checkpoint"
	"github.com/tenure-project/tenure/internal/core/authority/recovery"
)

func newAuthorityCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "authority",
		Short: "Read and audit the log of an authority's decisions",
		Long: `The leader of an authority decides, and every decision is an entry of one of
four chains: checkpoint, assignment, recovery and catalog. Each entry is linked,
by its digest, from the one after it, and the newest of each from the head.`,
		Args: cobra.NoArgs,
		RunE: showHelp,
	}
	cmd.AddCommand(newAuthorityLogCmd(a), newAuthorityShowCmd(a), newAuthorityAuditCmd(a), newAuthorityPruneCmd(a))
	return cmd
}

// entryJSON is one decision, for authority log and show.
type entryJSON struct {
	Schema      int             `json:"schema"`
	Namespace   string          `json:"namespace"`
	Authority   string          `json:"authority"`
	Chain       string          `json:"chain"`
	Sequence    uint64          `json:"sequence"`
	Key         uint64          `json:"key"`
	ID          uint64          `json:"id"`
	Object      string          `json:"object"`
	Digest      string          `json:"digest"`
	Token       uint64          `json:"token"`
	Node        string          `json:"node"`
	Incarnation string          `json:"incarnation"`
	Term        uint64          `json:"term"`
	At          *time.Time      `json:"at"`
	What        string          `json:"what"`
	Body        json.RawMessage `json:"body"`
}

func newEntryJSON(namespace, name string, e authority.Entry) entryJSON {
	return entryJSON{
		Schema: schema, Namespace: namespace, Authority: name, Chain: e.Chain, Sequence: e.Link.Sequence, Key: e.Link.Key, ID: e.Link.ID,
		Object: e.Link.Name().Element(), Digest: e.Link.Digest, Token: e.Proof.Token, Node: e.Proof.Node, Incarnation: e.Proof.Incarnation,
		Term: e.Proof.Term, At: instant(e.At), What: whatIs(e), Body: json.RawMessage(e.Body),
	}
}

// whatIs is a decision in a few words.
func whatIs(e authority.Entry) string {
	switch v := e.Value.(type) {
	case *checkpoint.Outcome:
		return fmt.Sprintf("%s of epoch %d, checkpoint %d", v.Verdict, v.Epoch, v.Checkpoint)
	case *assignment.Decision:
		if v.Kind == assignment.Replace {
			return fmt.Sprintf("recovery to version %d, without %s", v.Target.Version, counted(len(v.Removed), "process"))
		}
		return fmt.Sprintf("%s of a drain to version %d", v.Verdict, v.Target.Version)
	case *recovery.Release:
		return fmt.Sprintf("release of generation %d, %s stopped", v.Generation, counted(len(v.Stopped), "process"))
	case *catalog.Manifest:
		return "catalog of " + counted(len(v.Definitions), "definition")
	}
	return ""
}

// counted is a number of things, of which one is called what.
func counted(n int, what string) string {
	switch {
	case n == 1:
	case strings.HasSuffix(what, "s"):
		what += "es"
	default:
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// entriesOf reads the entries of some chains, newest first. What was read before an
// error is returned with it.
func entriesOf(ctx context.Context, r *authority.Reader, chains ...string) ([]authority.Entry, error) {
	var all []authority.Entry
	var failed []error
	for _, chain := range chains {
		for e, err := range r.Entries(ctx, chain) {
			if err != nil {
				failed = append(failed, withKey(r, err))
				break
			}
			all = append(all, e)
		}
	}
	slices.SortStableFunc(all, func(x, y authority.Entry) int { return cmp.Compare(y.Link.Sequence, x.Link.Sequence) })
	return all, errors.Join(failed...)
}

// chainFlag is one of the chains.
type chainFlag struct{ p *string }

func (f chainFlag) String() string {
	if f.p == nil {
		return ""
	}
	return *f.p
}

func (f chainFlag) Type() string { return "chain" }

func (f chainFlag) Set(s string) error {
	if !slices.Contains(authority.Chains(), s) {
		return fmt.Errorf("give one of %v, not %q", authority.Chains(), s)
	}
	*f.p = s
	return nil
}

func newAuthorityLogCmd(a *app) *cobra.Command {
	var asJSON bool
	var chain string
	var limit uint64
	cmd := &cobra.Command{
		Use:   "log NAME",
		Short: "List what an authority's leaders decided, newest first",
		Long: `List the decisions that stand, newest first: live entries, the anchors below
the floors, and commits that are kept below them. Every entry is verified
against the link to it. A broken link ends its chain: exit code 65, after what
could be read.`,
		Example: `  tenure authority log scheduler
  tenure authority log scheduler --chain checkpoint --limit 5 --json`,
		Args:              args(1, "NAME"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.action(func(ctx context.Context, _ *cobra.Command, args []string) error {
			name, err := authorityArg(args)
			if err != nil {
				return err
			}
			chains := authority.Chains()
			if chain != "" {
				chains = []string{chain}
			}
			return a.withAuthority(ctx, name, func(c *tenure.Client, r *authority.Reader) error {
				all, err := entriesOf(ctx, r, chains...)
				if limit > 0 && uint64(len(all)) > limit {
					all = all[:limit]
				}
				if len(all) == 0 && err != nil { // nothing is known of what was decided
					return err
				}
				return errors.Join(a.printLog(c.Namespace(), name, all, asJSON), err)
			})
		}),
	}
	addJSONFlag(cmd, &asJSON)
	addTimeoutFlag(cmd, timeoutUsage)
	cmd.Flags().Var(chainFlag{&chain}, "chain", "only this chain: checkpoint, assignment, recovery or catalog")
	cmd.Flags().Var(numberFlag{&limit}, "limit", "at most this many decisions")
	return cmd
}

// withAuthority runs f on an authority that was led at least once.
func (a *app) withAuthority(ctx context.Context, name string, f func(c *tenure.Client, r *authority.Reader) error) error {
	return a.withExisting(ctx, func(c *tenure.Client) error {
		r, err := authority.Read(ctx, c, name)
		if err != nil {
			return err
		}
		if _, err := r.Snapshot(ctx); err != nil {
			return err
		}
		return f(c, r)
	})
}

func (a *app) printLog(namespace, name string, all []authority.Entry, asJSON bool) error {
	if asJSON {
		for _, e := range all {
			if err := a.json(newEntryJSON(namespace, name, e)); err != nil {
				return err
			}
		}
		return nil
	}
	if len(all) == 0 {
		fmt.Fprintf(a.stderr, "tenure: the log of %s has no decision yet\n", showName(name))
		return nil
	}
	var t table
	t.row("SEQUENCE", "CHAIN", "TOKEN", "NODE", "AT", "DECISION")
	for _, e := range all {
		t.row(fmt.Sprint(e.Link.Sequence), e.Chain, fmt.Sprint(e.Proof.Token), showName(e.Proof.Node), stamp(e.At), whatIs(e))
	}
	t.print(a.out)
	return nil
}

func newAuthorityShowCmd(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show NAME SEQUENCE|LINK",
		Short: "Show one decision of an authority in full",
		Long: `Show the decision that was admitted at SEQUENCE, or that LINK names: the name
of its object, or its digest.`,
		Example:           `  tenure authority show scheduler 42`,
		Args:              args(2, "NAME", "SEQUENCE|LINK"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.action(func(ctx context.Context, _ *cobra.Command, args []string) error {
			name, err := authorityArg(args)
			if err != nil {
				return err
			}
			return a.withAuthority(ctx, name, func(c *tenure.Client, r *authority.Reader) error {
				e, err := findEntry(ctx, r, args[1])
				if err != nil {
					return err
				}
				j := newEntryJSON(c.Namespace(), name, e)
				if asJSON {
					return a.json(j)
				}
				a.printEntry(j)
				return nil
			})
		}),
	}
	addJSONFlag(cmd, &asJSON)
	addTimeoutFlag(cmd, timeoutUsage)
	return cmd
}

// findEntry finds the decision that what names. A broken chain hides what is behind
// its break: then the break is the error.
func findEntry(ctx context.Context, r *authority.Reader, what string) (authority.Entry, error) {
	sequence, err := strconv.ParseUint(what, 10, 64)
	bySequence := err == nil
	all, broken := entriesOf(ctx, r, authority.Chains()...)
	for _, e := range all {
		if bySequence && e.Link.Sequence == sequence || what == e.Link.Digest || what == e.Link.Name().Element() {
			return e, nil
		}
	}
	if broken != nil {
		return authority.Entry{}, broken
	}
	if bySequence {
		return authority.Entry{}, invalid("no decision that is kept was admitted at sequence %d (`tenure authority log` lists them; renewals are none)", sequence)
	}
	return authority.Entry{}, invalid("no decision that is kept has the link %q: give a sequence, an object's name or a whole digest, as `tenure authority log --json` prints them", what)
}

func (a *app) printEntry(j entryJSON) {
	var t table
	t.row("authority", showName(j.Authority))
	t.row("chain", j.Chain)
	t.row("sequence", fmt.Sprint(j.Sequence))
	t.row("key", fmt.Sprint(j.Key))
	t.row("decision", j.What)
	t.row("token", fmt.Sprint(j.Token))
	t.row("node", fmt.Sprintf("%s (incarnation %s, term %d)", showName(j.Node), printable(j.Incarnation), j.Term))
	if j.At != nil {
		t.row("at", since(*j.At, "by the leader's clock"))
	}
	t.row("object", j.Object)
	t.row("digest", j.Digest)
	t.print(a.out)
	a.printf("\n%s\n", printable(string(j.Body)))
}
