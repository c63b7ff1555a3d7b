package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// validate shows one property after the other; the first that is lacking ends
// it.
func (p *prober) validate(ctx context.Context) error {
	p.main = record{key: p.key("a")}
	steps := []func(context.Context, *record) error{
		p.stepCreate, p.stepReplace, p.stepSameBytes, p.stepAbsent, p.stepCreateRace, p.stepReplaceRace, p.stepDeleteIf,
	}
	if p.o.Deep {
		steps = append(steps, p.stepDeep)
	}
	for _, step := range append(steps, p.stepListAll) {
		if err := step(ctx, &p.main); err != nil {
			return p.explain(ctx, err)
		}
	}
	return nil
}

// explain says of an error that is no verdict why the probe came to none.
func (p *prober) explain(ctx context.Context, err error) error {
	if errors.As(err, new(*ProbeError)) {
		return err
	}
	if errors.Is(context.Cause(ctx), errProbeLimit) && KindOf(err) == ErrUnavailable && p.report.Repeated > 0 {
		return fmt.Errorf("the store did not let the probe finish within %v: it said \"try again\" %d times, the last time so: %w",
			p.o.Limit, p.report.Repeated, err)
	}
	if errors.Is(context.Cause(ctx), errProbeLimit) {
		return fmt.Errorf("the store did not let the probe finish within %v: %w", p.o.Limit, err)
	}
	return fmt.Errorf("the probe could not finish: %w", err)
}

func (p *prober) lacks(what Property, format string, args ...any) error {
	return &ProbeError{Store: p.info.Identity, Property: what, Seen: fmt.Sprintf(format, args...)}
}

// record is a key and the state that it should be in.
type record struct {
	key  string
	body []byte
	v    Version
}

// stepCreate makes a record, reads and lists it, and makes it again in vain (ST1, ST3,
// ST6).
func (p *prober) stepCreate(ctx context.Context, r *record) error {
	r.body = p.body("first")
	v, err := p.write(ctx, r.key, r.body, "")
	if err != nil {
		if isRefusal(err) {
			return p.lacks(CreateRefuses, "the create of a fresh key %s was refused: %v", r.key, err)
		}
		return err
	}
	r.v = v
	if err := p.expect(ctx, *r, nil); err != nil {
		return err
	}
	if err := p.listed(ctx, r.key); err != nil {
		return err
	}
	return p.refuse(ctx, *r, p.body("second create"), "", ErrExists, CreateRefuses)
}

// stepReplace moves the record on, then tries from the version that it had before
// (ST2, ST4).
func (p *prober) stepReplace(ctx context.Context, r *record) error {
	old := r.v
	if err := p.advance(ctx, r, p.body("replaced")); err != nil {
		return err
	}
	if r.v == old {
		return p.lacks(VersionChanges, "%s had the version %q before and after a replace", r.key, old)
	}
	return p.refuse(ctx, *r, p.body("stale replace"), old, ErrConflict, ReplaceRefuses)
}

// advance replaces r at its version.
func (p *prober) advance(ctx context.Context, r *record, body []byte) error {
	p.pace(ctx, r.key)
	v, err := p.write(ctx, r.key, body, r.v)
	if isRefusal(err) {
		return p.lacks(ReplaceWorks, "%v", err)
	}
	if err != nil {
		return err
	}
	r.body, r.v = body, v
	return p.expect(ctx, *r, nil)
}

// stepSameBytes writes the same bytes again, and older ones (ST4).
func (p *prober) stepSameBytes(ctx context.Context, r *record) error {
	first, a := r.v, r.body
	for _, body := range [][]byte{a, p.body("between"), a} {
		before := r.v
		if err := p.advance(ctx, r, body); err != nil {
			return err
		}
		if r.v == first || r.v == before {
			p.report.RepeatsVersions = true
		}
	}
	if p.report.RepeatsVersions && !p.info.ContentVersions {
		return p.lacks(VersionsUnique, "%s got the version %q twice", r.key, r.v)
	}
	return nil
}

// stepAbsent replaces what is not there (ST2).
func (p *prober) stepAbsent(ctx context.Context, r *record) error {
	absent := record{key: p.key("absent")}
	err := p.refuse(ctx, absent, p.body("replace of an absent key"), r.v, ErrNotFound, ReplaceNeverCreates)
	if err == nil {
		p.report.Keys = slices.DeleteFunc(p.report.Keys, func(k string) bool { return k == absent.key })
	}
	return err
}

// stepCreateRace lets many create one key at once (ST1).
func (p *prober) stepCreateRace(ctx context.Context, _ *record) error {
	return p.race(ctx, &record{key: p.key("race")}, OneCreator)
}

// stepReplaceRace lets many replace one version at once (ST2).
func (p *prober) stepReplaceRace(ctx context.Context, r *record) error {
	return p.race(ctx, r, OneReplacer)
}

// race lets all racers write r at its version at once, and takes r on to the
// winner's state.
func (p *prober) race(ctx context.Context, r *record, what Property) error {
	type result struct {
		body []byte
		v    Version
		err  error
	}
	p.pace(ctx, r.key)
	results := make([]result, p.o.Racers)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range results {
		body := p.body(fmt.Sprintf("racer %d", i))
		wg.Go(func() {
			<-start
			v, err := p.write(ctx, r.key, body, r.v)
			results[i] = result{body, v, err}
		})
	}
	close(start)
	wg.Wait()
	winners := []result{}
	for _, res := range results {
		switch {
		case res.err == nil:
			winners = append(winners, res)
		case !isRefusal(res.err):
			return res.err
		}
	}
	if len(winners) != 1 {
		return p.lacks(what, "%d of %d racers for %s were told that they won", len(winners), len(results), r.key)
	}
	p.refusals(what == OneCreator, len(results)-1)
	r.body, r.v = winners[0].body, winners[0].v
	losers := [][]byte{}
	for _, res := range results {
		losers = append(losers, res.body)
	}
	return p.expect(ctx, *r, losers)
}

// stepListAll lists everything that was written (ST6).
func (p *prober) stepListAll(ctx context.Context, _ *record) error {
	return p.listed(ctx, p.key("a"), p.key("race"))
}

// listed reports which of keys a listing lacks.
func (p *prober) listed(ctx context.Context, keys ...string) error {
	var got []string
	err := p.patiently(ctx, func() (err error) {
		got = nil
		p.timed("list", func() {
			for k, e := range p.s.List(ctx, p.base, "") {
				if err = e; err != nil {
					return
				}
				got = append(got, k)
			}
		})
		return err
	})
	if err != nil {
		return err
	}
	for _, k := range keys {
		if !slices.Contains(got, k) {
			return p.lacks(ListShows, "%s is not among the %d keys listed for its prefix", k, len(got))
		}
	}
	return nil
}

// stepDeep makes many writes that must be refused, some at a time (ST10).
func (p *prober) stepDeep(ctx context.Context, _ *record) error {
	const workers = 8
	errs := make([]error, workers)
	var wg sync.WaitGroup
	for i := range workers {
		r := record{key: p.key(fmt.Sprintf("deep-%d", i)), body: p.body("deep")}
		trials := deepTrials/2/workers + 1
		wg.Go(func() { errs[i] = p.deep(ctx, r, trials) })
	}
	wg.Wait()
	for _, err := range errs { // a verdict before trouble
		if errors.As(err, new(*ProbeError)) {
			return err
		}
	}
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// deep makes trials creates and as many replaces that must be refused, and moves
// the record on now and then.
func (p *prober) deep(ctx context.Context, r record, trials int) error {
	v, err := p.write(ctx, r.key, r.body, "")
	if err != nil {
		return err
	}
	old := v
	r.v = v
	for i := range trials {
		if i%8 == 0 {
			old = r.v
			if err := p.advance(ctx, &r, p.body("deep")); err != nil {
				return err
			}
		}
		if err := p.refuse(ctx, r, p.body("deep second create"), "", ErrExists, CreateRefuses); err != nil {
			return err
		}
		if err := p.refuse(ctx, r, p.body("deep stale replace"), old, ErrConflict, ReplaceRefuses); err != nil {
			return err
		}
	}
	return nil
}

// write writes body at version v (zero: creates) and settles an unknown outcome
// by reading its own body back (ST9). A refusal is returned as it came.
func (p *prober) write(ctx context.Context, key string, body []byte, v Version) (Version, error) {
	var got Version
	doubt := false
	err := p.patiently(ctx, func() error {
		w, err := p.send(ctx, key, body, v)
		doubt = doubt || errors.Is(err, ErrUnknown)
		if err == nil || !doubt || KindOf(err) == ErrUnavailable {
			got = w
			return err
		}
		o, readErr := p.get(ctx, key)
		switch {
		case readErr != nil && !errors.Is(readErr, ErrNotFound) && ctx.Err() == nil:
			return readErr // if that passes, send again
		case readErr != nil || o.Version == v:
			return err // unchanged: send again, or refused for good
		case string(o.Body) == string(body):
			got = o.Version
			return nil
		}
		return Errorf(refusalOf(v), p.info.Identity, "probe", key, "settled by reading: another write won")
	})
	if err == nil && got == "" {
		return "", p.lacks(VersionChanges, "a write of %s succeeded without a version", key)
	}
	return got, err
}

// refusalOf is how a write at version v (zero: a create) is refused.
func refusalOf(v Version) error {
	if v == "" {
		return ErrExists
	}
	return ErrConflict
}

func (p *prober) send(ctx context.Context, key string, body []byte, v Version) (w Version, err error) {
	if v == "" {
		p.timed("create", func() { w, err = p.s.Create(ctx, key, body) })
	} else {
		p.timed("replace", func() { w, err = p.s.Replace(ctx, key, body, v) })
	}
	switch KindOf(err) {
	case ErrUnavailable, ErrDenied, ErrInvalid: // nothing was written
	default:
		p.mu.Lock()
		p.made = true
		p.mu.Unlock()
	}
	return w, err
}

func (p *prober) get(ctx context.Context, key string) (o Object, err error) {
	p.timed("get", func() { o, err = p.s.Get(ctx, key, 4096) })
	return o, err
}

// expect reads r and reports what it finds instead of its state. refused are
// the bodies of writes that were refused.
func (p *prober) expect(ctx context.Context, r record, refused [][]byte) error {
	var o Object
	err := p.patiently(ctx, func() (err error) {
		o, err = p.get(ctx, r.key)
		return err
	})
	switch {
	case r.v == "" && errors.Is(err, ErrNotFound):
		return nil
	case errors.Is(err, ErrNotFound):
		return p.lacks(ReadShowsWrite, "%s was not found after it had been written at version %q", r.key, r.v)
	case err != nil:
		return err
	case o.Version == r.v && string(o.Body) == string(r.body):
		return nil
	}
	for _, body := range refused {
		if string(o.Body) == string(body) && string(body) != string(r.body) {
			return p.lacks(RefusalKeeps, "%s holds %s, whose write had been refused", r.key, o.Body)
		}
	}
	switch {
	case string(o.Body) == string(r.body) && !p.report.RepeatsVersions:
		return p.lacks(VersionAgrees, "%s was written at version %q and read at version %q", r.key, r.v, o.Version)
	case !strings.Contains(string(o.Body), p.base):
		return p.lacks(BodyKept, "%s holds %.100q; written was %s", r.key, o.Body, r.body)
	}
	return p.lacks(ReadShowsWrite, "%s holds %s at version %q; the last acknowledged write was %s at version %q", r.key, o.Body, o.Version, r.body, r.v)
}

// refuse makes a write that must be refused with kind, and checks that it
// changed nothing.
func (p *prober) refuse(ctx context.Context, r record, body []byte, v Version, kind error, what Property) error {
	w, err := p.write(ctx, r.key, body, v)
	switch {
	case err == nil:
		return p.lacks(what, "%s, at version %q, was written from version %q and is at %q now", r.key, r.v, v, w)
	case isRefusal(err) && !errors.Is(err, kind):
		return p.lacks(what, "%s was refused as %q, want %q: %v", r.key, KindOf(err), kind, err)
	case !isRefusal(err):
		return err
	}
	p.refusals(v == "", 1)
	return p.expect(ctx, r, [][]byte{body})
}

// refusals counts writes that were rightly refused.
func (p *prober) refusals(creates bool, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if creates {
		p.report.RefusedCreates += n
	} else {
		p.report.RefusedReplaces += n
	}
}

func isRefusal(err error) bool {
	return errors.Is(err, ErrExists) || errors.Is(err, ErrConflict) || errors.Is(err, ErrNotFound)
}
