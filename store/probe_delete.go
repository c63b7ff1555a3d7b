package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// stepDeleteIf finds out whether retention may rest on DeleteIf. A flaw is
// reported and is no failure: nothing else rests on it (ST5, LS15).
func (p *prober) stepDeleteIf(ctx context.Context, _ *record) error {
	d, ok := AsConditionalDeleter(p.s)
	if !ok {
		p.report.DeleteIfFlaw = "the store has no conditional delete"
		return nil
	}
	rounds := 3
	if p.o.Deep {
		rounds = 20
	}
	for i := range rounds {
		flaw, err := p.deleteRound(ctx, d, i)
		if errors.Is(err, ErrDenied) {
			flaw = "the rights to delete are missing"
		} else if err != nil {
			return err
		}
		if flaw != "" {
			p.report.DeleteIfFlaw = flaw
			return nil
		}
	}
	p.report.DeleteIfSound = true
	return nil
}

// deleteRound makes a stale DeleteIf, then races one at the present version
// against several replaces.
func (p *prober) deleteRound(ctx context.Context, d ConditionalDeleter, round int) (flaw string, err error) {
	r := record{key: p.key(fmt.Sprintf("delete-%d", round)), body: p.body("to be deleted")}
	if r.v, err = p.write(ctx, r.key, r.body, ""); err != nil {
		return "", err
	}
	old, created := r.v, r.body
	if err := p.advance(ctx, &r, p.body("to be deleted")); err != nil {
		return "", err
	}
	switch err := p.deleteIf(ctx, d, r.key, old); {
	case err == nil:
		return "a delete at an old version succeeded", nil
	case isRefusal(err) && !errors.Is(err, ErrConflict):
		return fmt.Sprintf("a delete at an old version was refused as %q", KindOf(err)), nil
	case !isRefusal(err):
		return "", err
	}
	if err := p.expect(ctx, r, nil); errors.As(err, new(*ProbeError)) {
		return "a delete at an old version was refused, but changed the record", nil
	} else if err != nil {
		return "", err
	}
	return p.judgeDelete(ctx, r.key, created, p.raceDelete(ctx, d, r, round%2 == 0))
}

// raceDelete races one DeleteIf against three Replaces; the delete's result is
// the last. Whoever is started last tends to run first, so that alternates.
func (p *prober) raceDelete(ctx context.Context, d ConditionalDeleter, r record, deleteLast bool) []error {
	results := make([]error, 4)
	var wg sync.WaitGroup
	remove := func() { results[3] = p.deleteIf(ctx, d, r.key, r.v) }
	if !deleteLast {
		wg.Go(remove)
	}
	for i := range 3 {
		body := p.body("against a delete")
		wg.Go(func() { _, results[i] = p.write(ctx, r.key, body, r.v) })
	}
	if deleteLast {
		wg.Go(remove)
	}
	wg.Wait()
	return results
}

// judgeDelete counts who won a race; the last result is the delete's. created is
// the body of the key's first create. If its reply was lost it may land again
// after a delete; then the race has shown nothing.
func (p *prober) judgeDelete(ctx context.Context, key string, created []byte, results []error) (flaw string, err error) {
	winners := 0
	for _, err := range results {
		if err == nil {
			winners++
		} else if !isRefusal(err) {
			return "", err
		}
	}
	var o Object
	err = p.patiently(ctx, func() (err error) {
		o, err = p.get(ctx, key)
		return err
	})
	deleted, absent := results[len(results)-1] == nil, errors.Is(err, ErrNotFound)
	switch {
	case err != nil && !absent:
		return "", err
	case string(o.Body) == string(created):
		return "", nil
	case winners != 1:
		return fmt.Sprintf("a delete and several replaces of one version raced, and %d of them won", winners), nil
	case deleted && !absent:
		return "a delete raced several replaces and won, but left a record", nil
	case !deleted && absent:
		return "a delete raced several replaces and took an acknowledged write away", nil
	}
	return "", nil
}

// deleteIf settles an unknown outcome by reading: only one caller deletes.
func (p *prober) deleteIf(ctx context.Context, d ConditionalDeleter, key string, v Version) error {
	doubt := false
	return p.patiently(ctx, func() (err error) {
		p.timed("delete-if", func() { err = d.DeleteIf(ctx, key, v) })
		doubt = doubt || errors.Is(err, ErrUnknown)
		if doubt && errors.Is(err, ErrNotFound) {
			return nil
		}
		return err
	})
}
