package main

import (
	"encoding/json"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// docs/cli.md has a section for every command, which names every flag of it;
// and it names no flag that a command does not have.
//
// SPEC UI1
func TestCommandsAreDocumented(t *testing.T) {
	t.Parallel()
	doc := readDoc(t)
	root := newRootCmd(newApp(strings.NewReader(""), discard{}, discard{}, nil))
	walk(root, func(c *cobra.Command) {
		_, section, found := strings.Cut(doc, "\n### `"+c.CommandPath()+"`\n")
		if !found {
			t.Errorf("docs/cli.md has no section `%s`", c.CommandPath())
			return
		}
		section, _, _ = strings.Cut(section, "\n##")
		named := map[string]bool{}
		for _, m := range regexp.MustCompile("(?m)^\\| `--([a-z-]+)").FindAllStringSubmatch(section, -1) {
			named[m[1]] = true
		}
		c.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			if f.Name != "help" && !named[f.Name] {
				t.Errorf("docs/cli.md does not tell of %s --%s", c.CommandPath(), f.Name)
			}
			delete(named, f.Name)
		})
		for name := range named {
			t.Errorf("docs/cli.md tells of %s --%s, which does not exist", c.CommandPath(), name)
		}
	})
}

// walk visits every command that does something of its own.
func walk(c *cobra.Command, visit func(*cobra.Command)) {
	for _, sub := range c.Commands() {
		if sub.HasSubCommands() {
			walk(sub, visit)
		} else if !sub.Hidden {
			visit(sub)
		}
	}
}

// Every help text is complete, and its lines fit a terminal.
func TestHelpTexts(t *testing.T) {
	t.Parallel()
	root := newRootCmd(newApp(strings.NewReader(""), discard{}, discard{}, nil))
	walk(root, func(c *cobra.Command) {
		if c.Short == "" || strings.HasSuffix(c.Short, ".") || c.Args == nil {
			t.Errorf("%s: the short text is missing or ends in a full stop, or any arguments are taken", c.CommandPath())
		}
		for line := range strings.Lines(c.Long) {
			if len(line) > 81 {
				t.Errorf("%s: the help has a line of %d bytes", c.CommandPath(), len(line)-1)
			}
		}
		if n := strings.Count(c.Long, "\n"); n > 15 {
			t.Errorf("%s: the help has %d lines", c.CommandPath(), n)
		}
	})
}

// docs/cli.md shows every JSON shape with exactly its fields, in their order.
//
// SPEC UI1
func TestJSONShapesAreDocumented(t *testing.T) {
	t.Parallel()
	doc := readDoc(t)
	for name, v := range map[string]any{
		"status": statusJSON{Ended: &endedJSON{}, Observed: &observedJSON{}, Session: &sessionJSON{}}, "history": tenureJSON{}, "watch": changeJSON{},
		"run --status-file": runStatus{Slots: []claimedJSON{{}}}, "check": checkJSON{}, "store show": spaceJSON{}, "store prune": prunedJSON{}, "doctor": doctorJSON{Checks: []finding{{}}}, "version": versionJSON{},
		"node status": nodeJSON{Revocations: []revocationJSON{{}}, Ended: &endedJSON{}, Observed: &observedJSON{}}, "node history": certificateJSON{}, "node verify": currentJSON{},
		"leader status": leaderJSON{Ended: &endedJSON{}, Chains: []chainJSON{{}}, Past: []pastJSON{{}}}, "authority log": entryJSON{Body: []byte(`{"v":1}`)},
		"authority audit": auditJSON{Breaks: []breakJSON{{}}}, "authority prune": logPrunedJSON{},
		"schedule --check": scheduleJSON{Options: []string{}, Next: []time.Time{}}, "ledger ls": jobJSON{}, "ledger compact": compactedJSON{},
		"ledger show": runJSON{Attempts: []attemptJSON{{Result: &resultJSON{}}}}, "ledger export": exportedJSON{},
		"ledger merge": logJSON{Epochs: []logEpochJSON{{}, {}}}, "ledger import": importedJSON{Open: []attemptJSON{{}}},
		"slots ls": tableJSON{}, "slots ls TABLE": rowJSON{Ended: &endedJSON{}, Observed: &observedJSON{}}, "slots map": mapJSON{Owners: []shareJSON{{}}},
		"slots key": keyJSON{}, "slots claim": slotEventJSON{}, "slots pin": pinJSON{},
		"slots plan":  slotPlanJSON{Hosts: []planHostJSON{{}}, Shards: []planShardJSON{{}}, Problems: []problemJSON{{}}},
		"bench store": benchJSON{Steps: []benchStep{{Calls: map[string]float64{"create": 1}}}, Cost: costJSON{Price: &priceJSON{}}},
	} {
		_, rest, found := strings.Cut(doc, "\n#### JSON of `"+name+"`")
		_, rest, fenced := strings.Cut(rest, "\n```json\n")
		example, _, closed := strings.Cut(rest, "\n```")
		if !found || !fenced || !closed {
			t.Errorf("docs/cli.md has no example of the JSON of %q", name)
			continue
		}
		want := fields(t, mustJSON(t, v))
		if got := fields(t, []byte(example)); !reflect.DeepEqual(got, want) {
			t.Errorf("docs/cli.md shows for %q the fields\n%v, but they are\n%v", name, got, want)
		}
	}
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	body, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// fields are the names in a JSON text, in order of appearance.
func fields(t *testing.T, text []byte) []string {
	t.Helper()
	if !json.Valid(text) {
		t.Fatalf("not JSON: %s", text)
	}
	var names []string
	for _, m := range regexp.MustCompile(`"([a-z0-9_]+)":`).FindAllSubmatch(text, -1) {
		names = append(names, string(m[1]))
	}
	return names
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }
