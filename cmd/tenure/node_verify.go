package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/internal/core/identity"
	"github.com/tenure-project/tenure/store"
)

func newNodeVerifyCmd(a *app) *cobra.Command {
	var asJSON bool
	var p tenure.Proof
	cmd := &cobra.Command{
		Use:   "verify NAME --incarnation ID [--term N]",
		Short: "Ask whether a process owns a node's name: exit code 0 if so, 76 if not",
		Long: `Ask the store whether exactly this start of a process owns the node's name, with
the evidence of its term. It prints nothing if it does, and exits with 76 if
not.

The answer is true at one instant during the call, and says that nobody took
the name, not that the process lives. Without --term any term will do.`,
		Example: `  tenure node verify web-1 --incarnation 0f8fad5b-d9cb-469f-a165-70867728950e --term 3
  tenure node verify web-1 --incarnation "$id" && echo current`,
		Args:              args(1, "NAME"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.action(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			node, err := nodeArg(args)
			if err := firstErr(err, required(cmd, "incarnation")); err != nil {
				return err
			}
			p.Node = node
			return a.withReader(ctx, func(c *tenure.Client) error { return a.verify(ctx, c, p, asJSON) })
		}),
	}
	addJSONFlag(cmd, &asJSON)
	addTimeoutFlag(cmd, timeoutUsage)
	addIncarnationFlag(cmd, &p.Incarnation, "the start of a process in question")
	cmd.Flags().Var(numberFlag{&p.Term}, "term", "its term (default any)")
	return cmd
}

func (a *app) verify(ctx context.Context, c *tenure.Client, p tenure.Proof, asJSON bool) error {
	err := c.VerifyCurrent(ctx, p)
	if err != nil && !errors.Is(err, tenure.ErrNotCurrent) {
		return err
	}
	if asJSON {
		j := currentJSON{Schema: schema, Namespace: c.Namespace(), Node: p.Node, Incarnation: p.Incarnation, Term: p.Term, Current: err == nil}
		if err := a.json(j); err != nil {
			return err
		}
	}
	if err == nil {
		return nil
	}
	s, readErr := c.Node(ctx, p.Node)
	if readErr != nil {
		return err
	}
	return &notOwnerError{p, ownerNow(s, p)}
}

// ownerNow says who owns the name instead of p.
func ownerNow(s tenure.NodeStatus, p tenure.Proof) string {
	switch {
	case s.State == tenure.Absent:
		return "no process ever joined under this name here"
	case s.Revoker:
		return fmt.Sprintf("the name was taken over to end it (term %d)", s.Term)
	case s.State == tenure.Released:
		return fmt.Sprintf("nobody owns the name (last term %d, %s)", s.Term, s.EndedHow)
	case s.Incarnation == p.Incarnation && s.Term != p.Term && p.Term != 0:
		return fmt.Sprintf("its term is %d, not %d", s.Term, p.Term)
	}
	return fmt.Sprintf("the owner is incarnation %s of term %d", s.Incarnation, s.Term)
}

func newNodeCheckCmd(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "check-certificate FILE|-",
		Short: "Check a certificate that somebody cites as proof of an end",
		Long: `Check that a certificate is what the store has, or what a later term bears out:
exit code 0 if its predecessor is over, 76 if the store does not bear it out,
65 if it contradicts what is stored. FILE holds its exact bytes, as the field
"certificate" of --json has them; - is standard input.

A WAIT that is printed has to pass first, from now and by your own clock.`,
		Example: `  tenure node check-certificate cited.json
  tenure node history web-1 --json | head -1 | jq -r .certificate | tenure node check-certificate -`,
		Args: args(1, "FILE"),
		RunE: a.action(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			body, err := a.readCertificate(args[0])
			if err != nil {
				return err
			}
			return a.withReader(ctx, func(c *tenure.Client) error { return a.checkCertificate(ctx, c, body, asJSON) })
		}),
	}
	addJSONFlag(cmd, &asJSON)
	addTimeoutFlag(cmd, timeoutUsage)
	return cmd
}

// readCertificate reads what cannot be a certificate as bad input, before the
// store is asked. The line feed that programs put behind a text is none of it.
func (a *app) readCertificate(name string) ([]byte, error) {
	from := a.stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, store.Wrap(tenure.ErrInvalid, "", "read the certificate", "", err)
		}
		defer func() { _ = f.Close() }()
		from = f
	}
	body, err := io.ReadAll(io.LimitReader(from, identity.MaxCertificate+2))
	if err != nil {
		return nil, store.Wrap(tenure.ErrInvalid, "", "read the certificate", "", err)
	}
	body = bytes.TrimSuffix(body, []byte("\n"))
	_, err = identity.ParseCertificate(body)
	switch {
	case len(body) > identity.MaxCertificate:
		return nil, invalid("no certificate is longer than %d bytes", identity.MaxCertificate)
	case errors.Is(err, store.ErrNewer):
		return nil, err
	case err != nil:
		return nil, invalid("this is no certificate: %s", plainCause(err))
	}
	return body, nil
}

func (a *app) checkCertificate(ctx context.Context, c *tenure.Client, body []byte, asJSON bool) error {
	cert, err := c.VerifyCertificate(ctx, body)
	if err != nil {
		return &citedError{err}
	}
	if asJSON {
		return a.json(newCertificateJSON(c.Namespace(), cert))
	}
	a.printCertificate(c.Namespace(), cert)
	return nil
}

// citedError says that a cited certificate does not hold.
type citedError struct{ err error }

func (e *citedError) Error() string { return "the certificate given: " + e.err.Error() }

func (e *citedError) Unwrap() error { return e.err }
