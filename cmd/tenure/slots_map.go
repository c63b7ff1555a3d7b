package main

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/cmd/tenure/internal/slotmap"
	"github.com/tenure-project/tenure/slots"
	"github.com/tenure-project/tenure/store"
)

func newSlotsMapCmd(a *app) *cobra.Command {
	var svg string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "map TABLE [--svg FILE]",
		Short: "Draw who owns which slots",
		Long: `Draw the 16,384 slots of a table by owner: as text of 16 lines, or with --svg
as a picture, which a browser shows, light or dark. A picture is read line by
line; what nobody owns is hatched.

It shows what the table says. That an owner is named does not prove that it
lives.`,
		Example: `  tenure slots map orders
  tenure slots map orders --svg orders.svg
  tenure slots map orders --json | jq '.owners[] | [.owner, .slots]'`,
		Args:              args(1, "TABLE"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.action(func(ctx context.Context, _ *cobra.Command, args []string) error {
			name, err := tableArg(args)
			if err != nil {
				return err
			}
			if svg != "" && svg != "-" {
				if err := checkPicture(svg); err != nil {
					return err
				}
			}
			return a.withReader(ctx, func(c *tenure.Client) error { return a.drawMap(ctx, c, name, svg, asJSON) })
		}),
	}
	addJSONFlag(cmd, &asJSON)
	addTimeoutFlag(cmd, timeoutUsage)
	cmd.Flags().Var(textFlag{&svg}, "svg", "write a picture to this `file`; - is standard output")
	cmd.MarkFlagsMutuallyExclusive("json", "svg")
	_ = cmd.MarkFlagFilename("svg", "svg")
	return cmd
}

func (a *app) drawMap(ctx context.Context, c *tenure.Client, name, svg string, asJSON bool) error {
	v, err := viewOf(ctx, c, name)
	if err != nil {
		return err
	}
	if asJSON {
		return a.json(a.newMapJSON(c.Namespace(), &v))
	}
	m := a.mapOf(c.Namespace(), &v, showName, printable)
	switch svg {
	case "":
		return m.Text(a.out, isTerminal(a.stdout) && a.env.get("NO_COLOR") == "" && a.env.get("TERM") != "dumb")
	case "-":
		return m.SVG(a.out)
	}
	var picture bytes.Buffer
	if err := m.SVG(&picture); err != nil {
		return err
	}
	if err := writePicture(svg, picture.Bytes()); err != nil {
		return &outputError{err}
	}
	return nil
}

// mapOf is a table as it is drawn; name and text make what others wrote safe for whoever
// looks.
func (a *app) mapOf(namespace string, v *slots.View, name, text func(string) string) *slotmap.Map {
	m := &slotmap.Map{Table: name(v.Table), Namespace: name(namespace), At: time.Unix(0, int64(a.clk.Read().Wall)), Counter: v.Counter}
	for i := range v.Rows {
		r := &v.Rows[i]
		d := slotmap.Row{First: int(r.Range.A), Last: int(r.Range.B), State: slotmap.State(rangeState(r)), Owner: name(r.Owner()), Epoch: r.Epoch}
		switch {
		case r.Held():
			d.Addr = text(r.Host.Addr)
		case d.State == slotmap.Kept:
			d.Owner = name(r.Freed.Successor)
		}
		m.Rows = append(m.Rows, d)
	}
	return m
}

func (a *app) newMapJSON(namespace string, v *slots.View) mapJSON {
	asIs := func(s string) string { return s }
	m := a.mapOf(namespace, v, asIs, asIs)
	j := mapJSON{
		Schema: schema, Namespace: namespace, Table: v.Table, At: instant(m.At), Counter: v.Counter,
		Held: m.Count(slotmap.Held), Free: m.Count(slotmap.Free), Kept: m.Count(slotmap.Kept), Watched: m.Count(slotmap.Watched),
		Owners: []shareJSON{},
	}
	for _, s := range m.Shares() {
		j.Owners = append(j.Owners, shareJSON{Owner: s.Owner, Addr: s.Addr, Slots: s.Slots, Ranges: s.Ranges, LowEpoch: s.Low, HighEpoch: s.High})
	}
	return j
}

// checkPicture refuses a place that no picture can be written to, before the store is
// asked.
func checkPicture(path string) error {
	bad := func(err error) error { return store.Wrap(store.ErrInvalid, "", "write picture", path, err) }
	switch info, err := os.Stat(path); {
	case err == nil && !info.Mode().IsRegular():
		return bad(errors.New("it is there, but is no regular file; --svg - is standard output"))
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return bad(err)
	}
	if info, err := os.Stat(filepath.Dir(path)); err != nil || !info.IsDir() {
		return bad(errors.Join(errors.New("its folder is not there"), err))
	}
	return nil
}

// writePicture replaces the file as a whole: a browser that loads it meanwhile sees the
// old or the new one.
func writePicture(path string, picture []byte) error {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	fresh, err := os.CreateTemp(filepath.Dir(path), ".tenure-map-*")
	if err != nil {
		return err
	}
	_, err = fresh.Write(picture)
	err = errors.Join(err, fresh.Chmod(0o644), fresh.Close())
	if err == nil {
		err = os.Rename(fresh.Name(), path)
	}
	if err != nil {
		_ = os.Remove(fresh.Name())
	}
	return err
}
