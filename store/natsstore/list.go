package natsstore

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenure-project/tenure/store"
)

const (
	// overlap is how many subjects two pages of a listing share, so that keys
	// which go meanwhile shift none out of sight.
	overlap = 1000

	// looks is how many keys are looked at at once.
	looks = 16

	// sweepAge is how old a marker is when a listing removes it, and
	// sweepMost how many it removes.
	sweepAge  = time.Minute
	sweepMost = 16
)

var errShifting = errors.New("the listing changes faster than it can be read")

// sweepFlag says that markers cannot be removed: do not try again.
type sweepFlag struct{ atomic.Bool }

// List yields the keys that start with prefix and are greater than after
// (ST6). The leader names the subjects that have messages. A key with one
// message was written once and never deleted; at any other it looks.
func (s *Store) List(ctx context.Context, prefix, after string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		const op = "list"
		if err := s.alive(ctx, op, ""); err != nil {
			yield("", err)
			return
		}
		if o := s.fence.pass(ctx); o != nil {
			yield("", s.failed(op, "", o))
			return
		}
		swept := 0
		for page, o := range s.pages(ctx, s.filter(prefix)) {
			if o != nil {
				yield("", s.failed(op, "", o))
				return
			}
			found := slices.DeleteFunc(page, func(f listed) bool { return !strings.HasPrefix(f.key, prefix) || f.key <= after })
			for some := range slices.Chunk(found, 4*looks) {
				if !s.yieldSome(ctx, some, &swept, yield) {
					return
				}
			}
		}
	}
}

// listed is a key that has messages.
type listed struct {
	key      string
	messages uint64
}

// filter is a subject with wildcards that matches the keys with prefix, and
// possibly others.
func (s *Store) filter(prefix string) string {
	folder := prefix[:strings.LastIndexByte(prefix, '/')+1]
	if folder == "" || store.CheckKey(folder+"x") != nil {
		return s.place.root + ">"
	}
	return s.place.subject(folder) + ">"
}

// yieldSome yields those of some keys that have a record.
func (s *Store) yieldSome(ctx context.Context, some []listed, swept *int, yield func(string, error) bool) bool {
	dead, o := s.deadAmong(ctx, some)
	if o != nil {
		yield("", s.failed("list", "", o))
		return false
	}
	for i, f := range some {
		if err := store.CtxErr(ctx, s.w.identity, "list", ""); err != nil {
			yield("", err)
			return false
		}
		if dead[i].seq == 0 {
			if !yield(f.key, nil) {
				return false
			}
			continue
		}
		if dead[i].marker && *swept < sweepMost && time.Since(dead[i].written) > sweepAge {
			*swept++
			s.sweep(ctx, f.key, dead[i].seq)
		}
	}
	return true
}

// deadAmong finds out which keys are deleted: for those it gives a message, or
// a sequence alone if there is none any more.
func (s *Store) deadAmong(ctx context.Context, some []listed) ([]last, *outcome) {
	dead := make([]last, len(some))
	failed := make([]*outcome, len(some))
	slots := make(chan struct{}, looks)
	var wg sync.WaitGroup
	for i, f := range some {
		if f.messages == 1 && s.place.history != 1 {
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			l, o := s.lastOf(ctx, s.place.subject(f.key))
			switch {
			case o != nil:
				failed[i] = o
			case l.seq == 0:
				dead[i] = last{seq: 1}
			case l.marker:
				dead[i] = l
			}
		})
	}
	wg.Wait()
	for _, o := range failed {
		if o != nil {
			return nil, o
		}
	}
	return dead, nil
}

// pages asks for the subjects that match filter, and yields their keys in
// order, each once.
func (s *Store) pages(ctx context.Context, filter string) iter.Seq2[[]listed, *outcome] {
	return func(yield func([]listed, *outcome) bool) {
		newest, offset := "", 0
		for {
			info, o := s.page(ctx, filter, offset)
			if o != nil {
				yield(nil, o)
				return
			}
			subjects := slices.Sorted(maps.Keys(info.State.Subjects))
			// A page that begins after the end of the one before it may have
			// left something out: keys that were removed shifted it.
			for back := overlap; offset > 0 && (len(subjects) == 0 || subjects[0] > newest); back *= 4 {
				if offset = max(offset-back, 0); back > 1<<20 {
					yield(nil, &outcome{kind: store.ErrUnavailable, err: errShifting})
					return
				}
				if info, o = s.page(ctx, filter, offset); o != nil {
					yield(nil, o)
					return
				}
				subjects = slices.Sorted(maps.Keys(info.State.Subjects))
			}
			end := offset + len(subjects)
			var keys []listed
			for _, subject := range subjects {
				if key, ok := s.place.key(subject); ok && subject > newest {
					keys = append(keys, listed{key, info.State.Subjects[subject]})
				}
			}
			if len(subjects) > 0 {
				newest = max(newest, subjects[len(subjects)-1])
			}
			if !yield(keys, nil) || end >= info.Total {
				return
			}
			offset = max(end-overlap, offset+1)
		}
	}
}

// page asks the leader for the subjects that match filter, from the one at
// offset on, in order.
func (s *Store) page(ctx context.Context, filter string, offset int) (streamInfo, *outcome) {
	var info streamInfo
	request := map[string]any{"subjects_filter": filter, "offset": offset}
	e, o := s.w.query(ctx, s.place.api+"STREAM.INFO."+s.place.stream, request, &info)
	switch {
	case o != nil:
		return info, o
	case e != nil:
		return info, &outcome{sent: true, kind: store.ErrUnavailable, err: s.explain(e)}
	case !info.Created.Equal(s.place.created):
		return info, &outcome{sent: true, kind: store.ErrUnavailable, err: errors.New("the bucket was deleted and made again")}
	}
	return info, nil
}

// sweep removes what is left of a deleted key, up to its marker. It cannot
// touch what was written since.
func (s *Store) sweep(ctx context.Context, key string, marker uint64) {
	if s.noSweep.Load() {
		return
	}
	var reply struct{}
	request := map[string]any{"filter": s.place.subject(key), "seq": marker + 1}
	if e, o := s.w.query(ctx, s.place.api+"STREAM.PURGE."+s.place.stream, request, &reply); e != nil || o != nil {
		s.noSweep.Store(true) // rights are missing, or it has no use now
	}
}
