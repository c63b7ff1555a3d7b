package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/authority"
	"github.com/tenure-project/tenure/authority/assignment"
	"github.com/tenure-project/tenure/authority/checkpoint"
)

// auditJSON is the shape of authority audit --json.
type auditJSON struct {
	Schema    int         `json:"schema"`
	Namespace string      `json:"namespace"`
	Authority string      `json:"authority"`
	Sequence  uint64      `json:"sequence"`
	Token     uint64      `json:"token"`
	Entries   int         `json:"entries"`
	Sound     bool        `json:"sound"`
	Breaks    []breakJSON `json:"breaks"`
}

// breakJSON is one broken link.
type breakJSON struct {
	Chain    string `json:"chain"`
	Sequence uint64 `json:"sequence"`
	Key      uint64 `json:"key"`
	Object   string `json:"object"`
	Flaw     string `json:"flaw"`
	Detail   string `json:"detail"`
	Restore  string `json:"restore"`
}

// auditError says that an audit found breaks, which were shown already.
type auditError struct {
	name   string
	breaks int
	err    error
}

func (e *auditError) Error() string {
	return fmt.Sprintf("the log of %s is broken in %s, named above", showName(e.name), counted(e.breaks, "place"))
}

func (e *auditError) Unwrap() error { return e.err }

// keyOf is the store's key of what is broken: what is to be put back.
func keyOf(r *authority.Reader, b *authority.BrokenError) string {
	kind, element, _ := strings.Cut(b.Where(), "/")
	return r.Key(kind, element)
}

// withKey adds to a broken link what is to be put back.
func withKey(r *authority.Reader, err error) error {
	var b *authority.BrokenError
	if errors.As(err, &b) {
		return fmt.Errorf("%w (restore %s)", err, keyOf(r, b))
	}
	return err
}

func newAuthorityAuditCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "audit NAME",
		Short: "Check every link of an authority's log",
		Long: `Read everything that the head reaches, every decision of every chain and its
large bodies, and check each against the link to it: bytes, order, counts and
who decided. The capsules of the commits from the horizon on are read too, and
the map that the newest assignment installed. Not covered is what no decision
names: a map of version 1 that was seeded, before the first drain or recovery.

Exit code 0 if all is sound, else 65, with the broken links and the keys of
what is to be restored. Nothing is changed.`,
		Example: `  tenure authority audit scheduler
  tenure authority audit scheduler --json | jq -r '.breaks[].restore'`,
	}
	return a.ofAuthority(cmd, a.audit)
}

// ofAuthority completes a command that takes one authority's name.
func (a *app) ofAuthority(cmd *cobra.Command, do func(ctx context.Context, c *tenure.Client, r *authority.Reader, asJSON bool) error) *cobra.Command {
	var asJSON bool
	cmd.Args, cmd.ValidArgsFunction = args(1, "NAME"), cobra.NoFileCompletions
	cmd.RunE = a.action(func(ctx context.Context, _ *cobra.Command, args []string) error {
		name, err := authorityArg(args)
		if err != nil {
			return err
		}
		return a.withAuthority(ctx, name, func(c *tenure.Client, r *authority.Reader) error { return do(ctx, c, r, asJSON) })
	})
	addJSONFlag(cmd, &asJSON)
	addTimeoutFlag(cmd, timeoutUsage)
	return cmd
}

func (a *app) audit(ctx context.Context, c *tenure.Client, r *authority.Reader, asJSON bool) error {
	report, err := r.Audit(ctx)
	if err != nil && len(report.Breaks) == 0 {
		return err
	}
	j := auditJSON{
		Schema: schema, Namespace: c.Namespace(), Authority: r.Name(), Sequence: report.Snapshot.Sequence(), Token: report.Snapshot.Token(),
		Entries: report.Entries, Sound: err == nil, Breaks: []breakJSON{},
	}
	for _, b := range report.Breaks {
		j.Breaks = append(j.Breaks, breakJSON{b.Chain, b.Link.Sequence, b.Link.Key, b.Link.Name().Element(), string(b.Flaw), b.Detail, keyOf(r, b)})
	}
	if err != nil {
		err = &auditError{name: j.Authority, breaks: len(j.Breaks), err: err}
	}
	if asJSON {
		return errors.Join(a.json(j), err)
	}
	if j.Sound {
		a.printf("the log of %s is sound: %s, read at sequence %d\n", showName(j.Authority), counted(j.Entries, "decision"), j.Sequence)
		return nil
	}
	a.printf("the log of %s is broken: %s could be read at sequence %d\n", showName(j.Authority), counted(j.Entries, "decision"), j.Sequence)
	for _, b := range j.Breaks {
		a.printf("broken: chain %s, sequence %d, key %d: %s: %s\n", b.Chain, b.Sequence, b.Key, b.Flaw, printable(b.Detail))
		a.printf("  restore %s\n", b.Restore)
	}
	return err
}

// logPrunedJSON is the shape of authority prune --json.
type logPrunedJSON struct {
	Schema      int    `json:"schema"`
	Namespace   string `json:"namespace"`
	Authority   string `json:"authority"`
	Removed     int    `json:"removed"`
	Kept        int    `json:"kept"`
	Capsules    int    `json:"capsules"`
	Quarantined int    `json:"quarantined"`
	Versions    int    `json:"versions"`
}

func newAuthorityPruneCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "prune NAME",
		Short: "Remove what no head of an authority reaches any more",
		Long: `Remove entries and large bodies that the head does not reach and that were
written under earlier tokens, recovery capsules below the horizon, and what is
of assignments below their floor. What stands stays, and so does what the
present leader wrote: it prunes that itself. What is no capsule is set aside,
not removed. It can run beside everything else, and needs the right to delete.`,
		Example: `  tenure authority prune scheduler`,
	}
	return a.ofAuthority(cmd, a.pruneLog)
}

// pruneLog prints what was done also where something failed.
func (a *app) pruneLog(ctx context.Context, c *tenure.Client, r *authority.Reader, asJSON bool) error {
	j := logPrunedJSON{Schema: schema, Namespace: c.Namespace(), Authority: r.Name()}
	err := errors.Join(j.prune(ctx, c), j.sweep(ctx, r), j.versions(ctx, r))
	if asJSON {
		return errors.Join(a.json(j), err)
	}
	a.printf("removed %s that nothing reaches, %s below the horizon and %s of old assignments\n",
		counted(j.Removed, "object"), counted(j.Capsules, "capsule"), counted(j.Versions, "object"))
	if j.Quarantined > 0 {
		a.printf("set aside what is no capsule: %s\n", counted(j.Quarantined, "object"))
	}
	return err
}

func (j *logPrunedJSON) prune(ctx context.Context, c *tenure.Client) error {
	for {
		p, err := authority.Prune(ctx, c, j.Authority)
		j.Removed += p.Removed
		j.Kept += p.Kept
		if err != nil || !p.More {
			return err
		}
	}
}

// sweep makes one pass, from wherever the last one stopped.
func (j *logPrunedJSON) sweep(ctx context.Context, r *authority.Reader) error {
	var failed []error
	for {
		s, err := checkpoint.Read(r).Sweep(ctx)
		j.Capsules += s.Deleted
		j.Quarantined += s.Quarantined
		if err != nil {
			failed = append(failed, fmt.Errorf("sweep the capsules: %w", err))
		}
		if !s.More || ctx.Err() != nil {
			return errors.Join(failed...)
		}
	}
}

// versions removes what is of assignments below their floor.
func (j *logPrunedJSON) versions(ctx context.Context, r *authority.Reader) error {
	for {
		p, err := assignment.Read(r).Prune(ctx)
		j.Versions += p.Removed
		if errors.Is(err, tenure.ErrNotFound) { // it has no assignment
			return nil
		}
		if err != nil || !p.More {
			return err
		}
	}
}
