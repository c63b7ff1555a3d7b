package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/authority"
	"github.com/tenure-project/tenure/authority/catalog"
	"github.com/tenure-project/tenure/authority/checkpoint"
	"github.com/tenure-project/tenure/store"
)

// result is what the store holds of a stream, read by a process that only looks.
type result struct {
	state  *state
	base   uint64            // the commit's epoch, 0 for none
	sealed *catalog.Manifest // nil before the end
}

// reading opens the store only to look.
func reading(ctx context.Context, c config, f func(r *authority.Reader) error) (err error) {
	client, err := tenure.Open(ctx, c.url, tenure.WithDrivers(c.drivers...), tenure.WithoutCreate())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	r, err := authority.Read(ctx, client, c.job)
	if err != nil {
		return err
	}
	err = f(r)
	if errors.Is(err, store.ErrNotFound) {
		err = fmt.Errorf("nothing was counted here as job %q yet: %w", c.job, err)
	}
	return err
}

// readResult reads the newest commit, and the catalog if it is sealed.
func readResult(ctx context.Context, r *authority.Reader) (*result, error) {
	res := &result{state: &state{Counts: counts{}}}
	_, commit, err := checkpoint.Read(r).Newest(ctx)
	if err != nil {
		return nil, err
	}
	if commit != nil {
		res.base = commit.Epoch
		if res.state, err = readState(ctx, checkpoint.Read(r), commit); err != nil {
			return nil, err
		}
	}
	if res.sealed, err = catalog.Read(ctx, r); errors.Is(err, store.ErrNotFound) {
		err = nil
	}
	return res, err
}

// audit walks everything that was ever decided and is kept, and names the first break.
func audit(ctx context.Context, r *authority.Reader) (authority.AuditReport, error) {
	report, err := r.Audit(ctx)
	var broken *authority.BrokenError
	if errors.As(err, &broken) {
		kind, element, _ := strings.Cut(broken.Where(), "/")
		err = fmt.Errorf("the log is broken: %w (restore %s)", err, r.Key(kind, element))
	}
	return report, err
}

// verify walks everything that was ever decided, and compares the sealed result with a
// plain count of the input. The log comes first: a break is told before what follows
// from it, and also of a stream that is not finished.
func verify(ctx context.Context, r *authority.Reader, in *input) (string, error) {
	report, err := audit(ctx, r)
	if err != nil {
		return "", err
	}
	res, err := readResult(ctx, r)
	if err != nil {
		return "", err
	}
	if res.sealed == nil {
		return "", fmt.Errorf("the stream is not finished: %d checkpoints are committed", res.state.Commits)
	}
	want, err := in.plain()
	if err != nil {
		return "", err
	}
	if err := res.differs(in, want); err != nil {
		return "", err
	}
	if faults, _ := report.Snapshot.Faults(); len(active(faults)) > 0 {
		return "", fmt.Errorf("%d faults are not cleared", len(active(faults)))
	}
	return fmt.Sprintf("exact: %d words after %d checkpoints, last epoch %d, last token %d; %d entries audited",
		len(want), res.state.Commits, res.base, report.Snapshot.Token(), report.Entries), nil
}

func (res *result) differs(in *input, want counts) error {
	for word, n := range want {
		if got := res.state.Counts[word]; got != n {
			return fmt.Errorf("%q was counted %d times and occurs %d times", word, got, n)
		}
	}
	if len(res.state.Counts) != len(want) {
		return fmt.Errorf("%d words were counted, and there are %d", len(res.state.Counts), len(want))
	}
	for i, d := range definitions(in, &view{base: res.base, state: res.state}) {
		if i >= len(res.sealed.Definitions) || res.sealed.Definitions[i] != d {
			return fmt.Errorf("the catalog says %v, not %v", res.sealed.Definitions, d)
		}
	}
	return nil
}

func active(all []authority.Fault) (some []authority.Fault) {
	for _, f := range all {
		if f.Active {
			some = append(some, f)
		}
	}
	return some
}
