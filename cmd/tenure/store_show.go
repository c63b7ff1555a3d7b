package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/store"
)

// spaceJSON is the shape of store show --json.
type spaceJSON struct {
	Schema          int        `json:"schema"`
	Namespace       string     `json:"namespace"`
	Level           int        `json:"format_level"`
	Newest          int        `json:"newest_level"`
	RetentionMS     int64      `json:"retention_ms"`
	Floor           uint64     `json:"floor"`
	Created         *time.Time `json:"created"`
	Store           string     `json:"store"`
	Driver          string     `json:"driver"`
	Powers          []string   `json:"powers"`
	SingleHost      bool       `json:"single_host"`
	WritesPerSecond float64    `json:"writes_per_second"`
}

func newStoreShowCmd(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show a namespace's settings and what its store can do",
		Args:  args(0),
		RunE: a.action(func(ctx context.Context, _ *cobra.Command, _ []string) error {
			return a.withExisting(ctx, func(c *tenure.Client) error {
				s, err := c.Settings(ctx)
				if errors.Is(err, tenure.ErrNotFound) { // it has no settings yet
					s, err = tenure.Settings{Namespace: c.Namespace()}, nil
				}
				if err != nil {
					return err
				}
				if asJSON {
					return a.json(newSpaceJSON(s, c.Store().Info()))
				}
				a.printSpace(s, c.Store().Info())
				return nil
			})
		}),
	}
	addJSONFlag(cmd, &asJSON)
	addTimeoutFlag(cmd, timeoutUsage)
	return cmd
}

func newSpaceJSON(s tenure.Settings, i store.Info) spaceJSON {
	return spaceJSON{
		Schema: schema, Namespace: s.Namespace, Level: s.Level, Newest: record.Level, RetentionMS: s.Retention.Milliseconds(),
		Floor: s.Floor, Created: instant(s.Created), Store: i.Identity, Driver: i.Driver, Powers: powers(i.Can),
		SingleHost: i.SingleHost, WritesPerSecond: i.WritesPerSecond,
	}
}

func (a *app) printSpace(s tenure.Settings, i store.Info) {
	var t table
	t.row("namespace", showName(s.Namespace))
	if s.Level > 0 {
		settingsRows(&t, s)
	} else {
		t.row("created", "not yet: `tenure store init` makes it, and so does the first command that acquires a lease in it")
	}
	t.row("store", printable(i.Identity))
	t.row("driver", i.Driver)
	t.row("powers", orDash(strings.Join(powers(i.Can), ", ")))
	t.row("hosts", hosts(i))
	if i.WritesPerSecond > 0 {
		t.row("writes", fmt.Sprintf("%g per second and lease", i.WritesPerSecond))
	}
	t.print(a.out)
}

func settingsRows(t *table, s tenure.Settings) {
	level := fmt.Sprint(s.Level)
	if s.Level < record.Level {
		level += fmt.Sprintf(" (this program can write %d: tenure store upgrade)", record.Level)
	}
	t.row("format level", level)
	t.row("retention", "released records are kept "+retention(s.Retention))
	t.row("floor", fmt.Sprintf("%d (a name never seen before gets a higher token)", s.Floor))
	t.row("created", since(s.Created, "by its maker's clock"))
}

func hosts(i store.Info) string {
	if i.SingleHost {
		return "this machine only"
	}
	return "any number"
}

// powers names the optional abilities of a store.
func powers(can store.Power) []string {
	names := []string{}
	for _, p := range []struct {
		power store.Power
		name  string
	}{
		{store.CanDeleteIf, "delete-if"}, {store.CanWatch, "watch"}, {store.CanClock, "clock"},
		{store.CanQueue, "queue"}, {store.CanProve, "proof-of-death"}, {store.CanModTime, "modification-times"},
		{store.CanCommit, "transactions"},
	} {
		if can.Has(p.power) {
			names = append(names, p.name)
		}
	}
	return names
}
