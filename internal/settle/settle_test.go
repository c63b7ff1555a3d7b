package settle

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-project/tenure/internal/clock"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/memstore"
)

// scripted answers the n-th write with the n-th step, then plainly.
type scripted struct {
	*memstore.Store
	steps []step
	reads []error // the n-th read fails with the n-th, if not nil
	calls []string
}

// step is what happens to one write.
type step struct {
	before func()  // runs first
	effect bool    // the write reaches the store
	late   *func() // set to a function that makes it reach the store later
	answer error   // the answer, nil for the store's own
	after  func()  // runs after the effect
}

func (s *scripted) write(op string, do func() (store.Version, error)) (store.Version, error) {
	s.calls = append(s.calls, op)
	if len(s.steps) == 0 {
		return do()
	}
	now := s.steps[0]
	s.steps = s.steps[1:]
	if now.before != nil {
		now.before()
	}
	var v store.Version
	err := now.answer
	if now.effect {
		v, err = do()
		if now.answer != nil {
			err = now.answer
		}
	}
	if now.late != nil {
		*now.late = func() { _, _ = do() }
	}
	if now.after != nil {
		now.after()
	}
	return v, err
}

func (s *scripted) Create(ctx context.Context, key string, body []byte) (store.Version, error) {
	return s.write("create", func() (store.Version, error) { return s.Store.Create(context.WithoutCancel(ctx), key, body) })
}

func (s *scripted) Replace(ctx context.Context, key string, body []byte, over store.Version) (store.Version, error) {
	return s.write("replace", func() (store.Version, error) {
		return s.Store.Replace(context.WithoutCancel(ctx), key, body, over)
	})
}

func (s *scripted) Get(ctx context.Context, key string, limit int) (store.Object, error) {
	s.calls = append(s.calls, "get")
	if len(s.reads) > 0 {
		err := s.reads[0]
		s.reads = s.reads[1:]
		if err != nil {
			return store.Object{}, err
		}
	}
	return s.Store.Get(ctx, key, limit)
}

func fail(kind error) error { return store.Errorf(kind, "", "write", "k", "by the test") }

// Every outcome of a conditional write, with lost replies, late landings and
// refusals by one's own success, is settled as what it was.
//
// SPEC ST9 ST8
// CASE B02 B20
func TestOutcomes(t *testing.T) {
	t.Parallel()
	unknown, unavailable := fail(store.ErrUnknown), fail(store.ErrUnavailable)
	var rival func()
	for name, c := range map[string]struct {
		steps []step
		reads []error
		want  Outcome
		kind  error
		calls string
	}{
		"plain":                         {nil, nil, Applied, nil, "replace"},
		"clean refusal":                 {[]step{{before: func() { rival() }, effect: true}}, nil, Rejected, store.ErrConflict, "replace"},
		"reply lost":                    {[]step{{effect: true, answer: unknown}}, nil, Applied, nil, "replace get"},
		"request lost":                  {[]step{{answer: unknown}}, nil, Applied, nil, "replace get replace"},
		"rival after a lost request":    {[]step{{answer: unknown, after: func() { rival() }}}, nil, Rejected, store.ErrConflict, "replace get"},
		"own success refused":           {[]step{{answer: unknown}, {effect: true, answer: fail(store.ErrConflict)}}, nil, Applied, nil, "replace get replace get"},
		"denied after own success":      {[]step{{answer: unknown}, {effect: true, answer: fail(store.ErrDenied)}}, nil, Applied, nil, "replace get replace get"},
		"busy, then fine (409 of S3)":   {[]step{{answer: unavailable}, {answer: unavailable}}, nil, Applied, nil, "replace replace replace"},
		"denied":                        {[]step{{answer: fail(store.ErrDenied)}}, nil, Rejected, store.ErrDenied, "replace"},
		"absent":                        {[]step{{answer: fail(store.ErrNotFound)}}, nil, Rejected, store.ErrNotFound, "replace"},
		"reads fail while in doubt":     {[]step{{effect: true, answer: unknown}}, []error{unavailable, unavailable}, Applied, nil, "replace get get get"},
		"stays unknown":                 {[]step{{effect: true, answer: unknown}}, repeat(unavailable, 1000), Unknown, store.ErrUnknown, ""},
		"never available, nothing sent": {repeatStep(step{answer: unavailable}, 1000), nil, Rejected, store.ErrUnavailable, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &scripted{Store: memstore.New(), steps: c.steps, reads: c.reads}
				defer s.Close()
				over, err := s.Store.Create(t.Context(), "k", []byte("old"))
				if err != nil {
					t.Fatal(err)
				}
				rival = func() {
					if _, err := s.Store.Replace(t.Context(), "k", []byte("rival"), over); err != nil {
						t.Error(err)
					}
				}
				res, err := do(t.Context(), s, over)
				if res.Outcome != c.want || c.kind == nil && err != nil || !errors.Is(err, c.kind) {
					t.Fatalf("outcome %v, %v; want %v, %v", res.Outcome, err, c.want, c.kind)
				}
				if got := strings.Join(s.calls, " "); c.calls != "" && got != c.calls {
					t.Errorf("calls %q, want %q", got, c.calls)
				}
				o, err := s.Store.Get(t.Context(), "k", 100)
				if err != nil || (string(o.Body) == "mine") != (c.want == Applied || c.want == Unknown) {
					t.Errorf("the store holds %q, %v", o.Body, err)
				}
				if res.Outcome == Applied && res.Version != o.Version {
					t.Errorf("version %q, the store says %q", res.Version, o.Version)
				}
			})
		})
	}
}

// A request that lands after the same bytes were sent again changes nothing.
//
// SPEC ST9
func TestLateLandingIsHarmless(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{Store: memstore.New()}
		defer s.Close()
		var land func()
		s.steps = []step{{answer: fail(store.ErrUnknown), late: &land}}
		over, _ := s.Store.Create(t.Context(), "k", []byte("old"))
		res, err := do(t.Context(), s, over)
		if err != nil {
			t.Fatal(err)
		}
		v, err := s.Store.Replace(t.Context(), "k", []byte("next"), res.Version)
		if err != nil {
			t.Fatal(err)
		}
		land()
		if o, _ := s.Store.Get(t.Context(), "k", 100); o.Version != v {
			t.Fatalf("the late request changed the key to %q", o.Body)
		}
	})
}

// Trust counts from before the first send, whatever was repeated.
//
// SPEC DL4
func TestSentIsBeforeTheFirstSend(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{Store: memstore.New(), steps: []step{{answer: fail(store.ErrUnavailable), after: func() { time.Sleep(time.Second) }}}}
		defer s.Close()
		over, _ := s.Store.Create(t.Context(), "k", []byte("old"))
		c := clock.NewVirtual(1)
		before := c.Boot()
		res, err := doOn(t.Context(), c, s, over)
		if err != nil || res.Sent.Boot() != before || c.Boot()-before < time.Second {
			t.Fatalf("sent %v, began %v, now %v (%v)", res.Sent.Boot(), before, c.Boot(), err)
		}
	})
}

func do(ctx context.Context, s store.Store, over store.Version) (Result, error) {
	return doOn(ctx, clock.NewVirtual(1), s, over)
}

func doOn(ctx context.Context, c clock.Clock, s store.Store, over store.Version) (Result, error) {
	ctx, cancel := Limit(ctx, c, time.Minute)
	defer cancel()
	return Do(ctx, s, Write{
		Key: "k", Body: []byte("mine"), Over: over, Limit: 100,
		Mine: func(b []byte) bool { return string(b) == "mine" },
	}, Pace{Clock: c, Attempt: time.Second, Backoff: 100 * time.Millisecond, Rand: func() float64 { return 0.5 }})
}

func repeat(err error, n int) []error {
	out := make([]error, n)
	for i := range out {
		out[i] = err
	}
	return out
}

func repeatStep(s step, n int) []step {
	out := make([]step, n)
	for i := range out {
		out[i] = s
	}
	return out
}
