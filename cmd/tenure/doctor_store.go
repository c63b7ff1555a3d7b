package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/cmd/tenure/internal/bench"
	"github.com/tenure-project/tenure/cmd/tenure/internal/prices"
	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/store"
)

// storeFindings checks the store as far as it comes.
func (a *app) storeFindings(ctx context.Context, t target, o store.ProbeOptions) []finding {
	if err := t.prepare(); err != nil {
		return []finding{failure("store", err)}
	}
	st, _, err := tenure.OpenStore(ctx, t.url, a.options(t)...)
	if err != nil {
		return []finding{failure("store", err)}
	}
	found := []finding{storeFinding(st.Info())}
	found = append(found, placeFindings(t.url, st.Info().Scheme)...)
	found = append(found, settingsFindings(ctx, st)...)
	var times callTimes
	report, err := store.Probe(ctx, bench.NewTap(st, "", times.seen), o)
	found = append(found, probeFindings(report, err, times.finding())...)
	if report.Sound {
		found = append(found, costFinding(st.Info()), a.namespaceFinding(ctx, st, t, report))
	}
	if err := st.Close(); err != nil {
		found = append(found, failure("close", err))
	}
	return found
}

func storeFinding(i store.Info) finding {
	detail := fmt.Sprintf("%s (%s), for %s; powers: %s", i.Identity, i.Driver, hosts(i), orDash(strings.Join(powers(i.Can), ", ")))
	if i.WritesPerSecond > 0 {
		detail += fmt.Sprintf("; a lease takes %g writes per second, so its TTL must be at least %v", i.WritesPerSecond,
			time.Duration(10/i.WritesPerSecond*float64(time.Second)))
	}
	return good("store", "%s", detail)
}

// durability is what an acknowledged write survives, by scheme (ST16).
var durability = map[string]string{
	"file":   "a write is acknowledged after fsync of the file and its folder: it survives a power cut, as far as the disk keeps its word",
	"sqlite": "a write is acknowledged after a full sync: it survives a power cut, as far as the disk keeps its word",
	"s3":     "a write is acknowledged when the service has it on as many devices as the bucket's storage class says",
	"gs":     "a write is acknowledged when the service has it on as many devices as the bucket's location says",
	"azblob": "a write is acknowledged when the primary region has it; a fail-over to a secondary one may turn tokens back",
	"etcd":   "a write is acknowledged when a majority of the members synced it",
}

// pages are the pages in the documentation of the stores that can tell of their
// settings.
var pages = map[string]string{"s3": "s3", "gs": "gcs", "azblob": "azure", "nats": "nats"}

// settingsLimit bounds a look at the store's settings.
const settingsLimit = 10 * time.Second

// settingsFindings are what the store's own settings do to leases, as far as it
// can tell.
func settingsFindings(ctx context.Context, st store.Store) []finding {
	const check = "settings"
	i, can := st.(store.Inspector)
	if !can {
		return nil
	}
	page := "docs/stores/" + pages[st.Info().Scheme] + ".md"
	ctx, cancel := context.WithTimeout(ctx, settingsLimit)
	defer cancel()
	sentences, err := i.Inspect(ctx)
	var found []finding
	for _, s := range sentences {
		found = append(found, warning(check, "see "+page, "%s", s))
	}
	switch {
	case err != nil:
		found = append(found, warning(check, "look at them by hand, with "+page, "they cannot be seen from here: %v", err))
	case len(found) == 0:
		found = append(found, good(check, "nothing stands out"))
	}
	return found
}

// placeFindings looks at where the store keeps its data.
func placeFindings(rawURL, scheme string) []finding {
	if scheme == "mem" {
		return []finding{warning("durability", "use it for tests only", "the store is in this process's memory: no other process sees it, and it ends with it")}
	}
	var found []finding
	if text, ok := durability[scheme]; ok {
		found = append(found, good("durability", "%s", text))
	}
	path := localPath(rawURL, scheme)
	if path == "" {
		return found
	}
	name, err := fileSystem(path)
	return append(found, fileSystemFinding(path, name, err))
}

func fileSystemFinding(path, name string, err error) finding {
	const check = "file-system"
	switch {
	case err != nil:
		return good(check, "%s: of what kind cannot be told: %v", path, err)
	case name == "tmpfs" || name == "ramfs":
		return warning(check, "use a folder on a disk", "%s is on %s: everything is gone after a restart, and tokens begin again at 1", path, name)
	case name == "overlay":
		return warning(check, "mount a volume and keep the store there", "%s is on a container's own layer (overlay): it is gone with the container, and tokens begin again at 1", path)
	}
	return good(check, "%s is on %s", path, name)
}

// localPath is the folder in which a store of files lies, "" for others.
func localPath(rawURL, scheme string) string {
	path := storePath(rawURL)
	if path != "" && scheme == "sqlite" {
		path = filepath.Dir(path)
	}
	return path
}

// probeFindings turns the probe's report into lines.
func probeFindings(r store.Report, err error, latency finding) []finding {
	if !r.Sound {
		check := "probe"
		if errors.Is(err, store.ErrDenied) {
			check = "rights"
		}
		return []finding{failure(check, err)}
	}
	found := []finding{good("probe", "the store keeps what leases need (%s)", age(r.Took)), latency}
	if r.RefusedCreates+r.RefusedReplaces >= 500 {
		found = append(found, good("odds", "%s", r.Odds()))
	}
	switch {
	case r.DeleteDenied:
		found = append(found, warning("rights", "grant the right to delete if you want clean-up", "%s", r.Note()))
	case err != nil:
		found = append(found, warning("clean-up", "remove the keys by hand", "%v", err))
	default:
		found = append(found, good("rights", "create, read, replace, list and delete all work"))
	}
	if r.Repeated > 0 {
		found = append(found, warning("answers", "look at the network and the store's own health", "%d calls had to be sent again, because the store did not answer or was not available", r.Repeated))
	}
	return found
}

// callTimes collects how long the calls of a probe took. It is safe for
// concurrent use.
type callTimes struct {
	mu      sync.Mutex
	byOp    map[string]bench.Times // of calls that succeeded: a refusal may cost less
	longest time.Duration          // of all calls
}

func (t *callTimes) seen(_ context.Context, c bench.Call) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byOp == nil {
		t.byOp = map[string]bench.Times{}
	}
	if c.Err == nil {
		t.byOp[c.Op] = append(t.byOp[c.Op], c.Took)
	}
	t.longest = max(t.longest, c.Took)
}

func (t *callTimes) finding() finding {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, all := range t.byOp {
		slices.Sort(all)
	}
	return latencyFinding(t.byOp, t.longest)
}

// enoughForP99 is how many calls a 99th percentile needs to say more than the
// longest does.
const enoughForP99 = 100

// latencyFinding says how long calls took, and compares the longest with how long
// one may take.
func latencyFinding(times map[string]bench.Times, longest time.Duration) finding {
	const check = "latency"
	t := lease.Timing{}.Defaults()
	var parts []string
	for _, op := range slices.Sorted(maps.Keys(times)) {
		all := times[op]
		text := fmt.Sprintf("%s %v/%v", op, round(all.Percentile(50)), round(all.Max()))
		if len(all) >= enoughForP99 {
			text += fmt.Sprintf(" (p99 %v)", round(all.Percentile(99)))
		}
		parts = append(parts, text)
	}
	detail := "median/longest: " + strings.Join(parts, ", ")
	if longest > t.Attempt {
		least := (longest*15/2 + time.Second).Truncate(time.Second)
		return warning(check, fmt.Sprintf("give leases a TTL of at least %v, or a faster store", least),
			"%s; one call took %v, and may take %v under the default TTL of %v", detail, round(longest), t.Attempt, t.TTL)
	}
	return good(check, "%s", detail)
}

// costFinding says what a lease takes in a month at the default TTL, or at the
// shortest that the store takes if that is longer. A renewal is one conditional
// write; `tenure bench store` counts.
func costFinding(i store.Info) finding {
	c := costOf(i, max(lease.Timing{}.Defaults().TTL, prices.LowestTTL(i)), nil)
	detail := fmt.Sprintf("a lease held for 30 days at a TTL of %v sends %s requests (%.2f a second): ", c.ttl, grouped(c.month.Total()), c.month.Total()/prices.Month.Seconds())
	if c.priced {
		detail += fmt.Sprintf("%s, and less than $1 from a TTL of %v on", dollars(c.list.Dollars(c.month)), c.underDollar)
	} else {
		detail += c.money()
	}
	detail += "; a waiter: " + c.waiting()
	if c.priced {
		detail += "; " + strings.Join(c.price(), " ")
	}
	return good("cost", "%s", detail)
}

// round keeps about three digits.
func round(d time.Duration) time.Duration {
	for unit := time.Second; unit > 1; unit /= 1000 {
		if d >= unit {
			return d.Round(unit / 100)
		}
	}
	return d
}

// namespaceFinding looks at the namespace's settings, without making it.
func (a *app) namespaceFinding(ctx context.Context, st store.Store, t target, r store.Report) finding {
	const check = "namespace"
	call, cancel := context.WithTimeout(ctx, lease.Timing{}.Defaults().Attempt)
	_, err := st.Get(call, store.Key(t.namespace, "meta", "namespace"), lease.MaxNamespaceBody)
	cancel()
	if errors.Is(err, store.ErrNotFound) {
		return good(check, "%q does not exist yet; the first command that uses it makes it", t.namespace)
	}
	c, err := tenure.New(ctx, st, append(a.options(t), tenure.WithoutCreate())...)
	if err != nil {
		return failure(check, err)
	}
	s, err := c.Settings(ctx)
	if err = errors.Join(err, c.Close()); err != nil {
		return failure(check, err)
	}
	if s.Retention > 0 && !r.DeleteIfSound {
		return warning(check, "do not run `tenure store prune` here; use a namespace that keeps everything",
			"%q keeps released records %s only, but this store cannot remove them safely: %s", s.Namespace, retention(s.Retention), r.DeleteIfFlaw)
	}
	return good(check, "%q: format level %d, released records are kept %s, floor %d", s.Namespace, s.Level, retention(s.Retention), s.Floor)
}
