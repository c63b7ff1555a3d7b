package authority

import (
	"context"
	"iter"
	"slices"
	"strings"
	"time"

	tenure "github.com/tenure-project/tenure"
	core "github.com/tenure-project/tenure/internal/core/authority"
	"github.com/tenure-project/tenure/internal/core/authority/assignment"
	"github.com/tenure-project/tenure/internal/core/authority/catalog"
	"github.com/tenure-project/tenure/internal/core/authority/checkpoint"
	"github.com/tenure-project/tenure/internal/core/authority/recovery"
	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/store"
)

// rulesOf are the rules of all chains.
func rulesOf() map[string]Rules {
	return map[string]Rules{
		Checkpoint: checkpoint.Rules{}, Assignment: assignment.Rules{}, Recovery: recovery.Rules{}, Catalog: catalog.Rules{},
	}
}

// needsAtOnce is how many objects of up to 8 MiB an audit holds at the same time.
const needsAtOnce = 8

// Reader looks at one authority and writes nothing. All methods are safe for
// concurrent use.
type Reader struct{ *files }

// Read returns a reader of the authority name, for processes that only look. It
// does no I/O yet.
func Read(ctx context.Context, c *tenure.Client, name string) (*Reader, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	f, err := newFiles(c.Kit(), name)
	if err != nil {
		return nil, err
	}
	return &Reader{files: f}, nil
}

// Name is the authority's name.
func (r *Reader) Name() string { return r.name }

// Snapshot reads the head, with one linearizable read. An authority that never was
// is store.ErrNotFound.
func (r *Reader) Snapshot(ctx context.Context) (Snapshot, error) {
	s, err := r.stands(ctx)
	if err != nil {
		return Snapshot{}, err
	}
	return Snapshot{head: s.head, ver: s.ver, f: r.files}, nil
}

// Entries yields what stands in a chain, newest first: the live entries down to the
// floor, the anchor, then marked ones that are kept below it. Every entry is
// verified against its link and its rules before it is yielded; the first broken
// one is a *[BrokenError], which ends it. A compaction that comes between begins
// anew from where it stood.
func (r *Reader) Entries(ctx context.Context, chain string) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		s, err := r.stands(ctx)
		rules := rulesOf()[chain]
		if rules == nil {
			err = store.Errorf(store.ErrInvalid, "", "read", r.name, "there is no chain %q", chain)
		}
		if err != nil {
			yield(Entry{}, err)
			return
		}
		w := entries{f: r.files, ahead: newAhead(r.files), rules: rules, head: s.head, trail: core.Follow(s.head, chain, nil)}
		defer w.ahead.stop()
		for {
			e, more, err := w.next(ctx)
			if !more && err == nil || !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// entries is one walk that yields what it passes.
type entries struct {
	f     *files
	ahead *ahead
	read  int // entries: whoever wants more than a few wants many
	rules Rules
	head  *core.Head
	trail *core.Trail
	last  *Link // yielded last: everything from there on is older
}

func (w *entries) next(ctx context.Context) (Entry, bool, error) {
	for {
		for _, s := range w.trail.Steps() {
			if w.last == nil || s.Link.Key < w.last.Key {
				e, err := w.entry(ctx, s)
				if err != nil {
					moved, bad := w.moved(ctx)
					if bad != nil {
						err = bad
					}
					if moved {
						break
					}
				}
				w.last = &s.Link
				return e, true, err
			}
		}
		l, more := w.trail.Next()
		if !more {
			if b := w.trail.Broken(); b != nil {
				return Entry{}, false, b
			}
			return Entry{}, false, nil
		}
		if w.read++; w.read > aheadFrom/4 {
			w.ahead.start(ctx, w.trail.Left())
		}
		body, err := w.ahead.fetch(ctx, l.Name(), core.MaxEntry)
		if err != nil {
			return Entry{}, false, err
		}
		if broken := w.trail.Take(body); broken != nil {
			moved, err := w.moved(ctx)
			if err == nil && !moved {
				err = broken
			}
			if err != nil {
				return Entry{}, false, err
			}
		}
	}
}

// moved reports whether the head says something else of the chain now, and goes on
// from there: a compaction may have removed what the walk was to read.
func (w *entries) moved(ctx context.Context) (bool, error) {
	s, err := w.f.stands(ctx)
	if err != nil || w.trail.Of(s.head) {
		return false, err
	}
	w.head, w.trail = s.head, core.Follow(s.head, w.rules.Chain(), w.trail)
	return true, nil
}

// entry reads and verifies the decision of s.
func (w *entries) entry(ctx context.Context, s core.Step) (Entry, error) {
	f, rules := w.f, w.rules
	e := Entry{Chain: rules.Chain(), Link: s.Link, Proof: tenure.Proof(s.Entry.Proof), Marked: s.Entry.Marked, At: time.UnixMilli(s.Entry.At), Body: s.Entry.Body}
	object := "" // the entry itself
	broken := func(flaw Flaw, detail string) error {
		return &BrokenError{Chain: e.Chain, Link: s.Link, Flaw: flaw, Detail: detail, Object: object}
	}
	if n, ok := s.Entry.BlobName(); ok {
		object = string(n.Kind) + "/" + n.Element()
		blob, err := w.ahead.fetch(ctx, n, core.MaxBlob)
		if err != nil {
			return e, err
		}
		if blob == nil {
			return e, broken(Missing, "its blob is not there")
		}
		if s.Entry.Blob.Verify(f.key(string(n.Kind), n.Element()), blob) != nil {
			return e, broken(Altered, "its blob has other bytes")
		}
		e.Body, object = blob, ""
	}
	it, err := core.Verify(rules, s.Link.Name().Element(), s.Entry, e.Body)
	if err != nil {
		return e, broken(NotCanonical, err.Error())
	}
	e.Value = it.Value
	return e, nil
}

// AuditReport is what an audit found.
type AuditReport struct {
	// Snapshot is the head that was walked.
	Snapshot Snapshot
	// Entries counts the entries that were read and are sound by themselves.
	Entries int
	// Breaks are all broken links, at most one of each chain and those that show only
	// across chains; the first one is the audit's error.
	Breaks []*BrokenError
}

// Audit walks everything that the head reaches, every entry and blob of every chain,
// reads the capsules of the commits from the horizon on and the map that is current,
// and names the first broken link in its error, a *[BrokenError] (LA5). A compaction
// that comes between is no break. An authority that never was is store.ErrNotFound.
func (r *Reader) Audit(ctx context.Context) (AuditReport, error) {
	for {
		s, err := r.stands(ctx)
		if err != nil {
			return AuditReport{}, err
		}
		report, err := r.audit(ctx, s)
		if err != nil {
			return AuditReport{}, err
		}
		if len(report.Breaks) == 0 {
			return report, nil
		}
		now, err := r.stands(ctx)
		if err != nil {
			return AuditReport{}, err
		}
		if sameChain(s.head, now.head, report.Breaks[0].Chain) {
			return report, report.Breaks[0]
		}
	}
}

// sameChain reports whether two heads say the same of a chain.
func sameChain(a, b *core.Head, chain string) bool { return core.Follow(a, chain, nil).Of(b) }

func (r *Reader) audit(ctx context.Context, s state) (AuditReport, error) {
	var rules []Rules
	for _, x := range rulesOf() {
		rules = append(rules, x)
	}
	a, err := core.NewAudit(s.head, rules...)
	if err != nil {
		return AuditReport{}, err
	}
	src := newAhead(r.files)
	defer src.stop()
	src.start(ctx, a.Left())
	for {
		w, more := a.Next()
		if !more {
			break
		}
		body, err := src.fetch(ctx, w.Name, w.Limit)
		if err != nil {
			return AuditReport{}, err
		}
		a.Take(body)
	}
	if err := r.auditNeeds(ctx, a); err != nil {
		return AuditReport{}, err
	}
	return AuditReport{Snapshot: Snapshot{head: s.head, ver: s.ver, f: r.files}, Entries: a.Entries(), Breaks: a.Breaks()}, nil
}

// auditNeeds reads the objects that decisions name, some at the same time: each may
// have 8 MiB.
func (r *Reader) auditNeeds(ctx context.Context, a *core.Audit) error {
	type found struct {
		keys   []string
		bodies [][]byte
		err    error
	}
	needs := a.Needs()
	for batch := range slices.Chunk(needs, needsAtOnce) {
		all := make([]found, len(batch))
		many(len(batch), func(i int) {
			f := &all[i]
			for _, o := range batch[i].Any {
				key := r.key(string(o.Kind), o.Element)
				body, err := r.fetchKey(ctx, key, o.Limit)
				f.keys, f.bodies, f.err = append(f.keys, key), append(f.bodies, body), err
				if err != nil || body != nil {
					return
				}
			}
		})
		for i, f := range all {
			if f.err != nil {
				return f.err
			}
			a.Judge(batch[i], f.keys, f.bodies)
		}
	}
	return nil
}

// List yields the names of all authorities of the client's namespace, in the order
// of their keys.
func List(ctx context.Context, c *tenure.Client) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		f := &files{c: c.Kit()}
		prefix := store.Prefix(f.c.Namespace, kindHead)
		for element, err := range f.elements(ctx, prefix, "") {
			if err != nil {
				yield("", err)
				return
			}
			name, err := f.nameOf(ctx, prefix, element)
			if !yield(name, err) {
				return
			}
		}
	}
}

// nameOf is the authority whose head's key ends in element, which may hold only the
// digest of a long name; the head then says the rest.
func (f *files) nameOf(ctx context.Context, prefix, element string) (string, error) {
	name, exact, err := store.DecodeName(element)
	if err != nil || exact {
		return name, err
	}
	body, err := f.get(ctx, prefix+element, core.MaxHead)
	if err != nil {
		return "", err
	}
	var h core.Head
	if err := record.Decode(prefix+element, body, &h); err != nil {
		return "", err
	}
	if !strings.HasSuffix(store.Key(f.c.Namespace, kindHead, h.Authority), "/"+element) {
		return "", store.Errorf(store.ErrCorrupt, f.identity(), "list", prefix+element, "the head says it belongs to authority %q", h.Authority)
	}
	return h.Authority, nil
}
