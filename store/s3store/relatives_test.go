package s3store

import (
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/tenure-project/tenure/store"
)

// gofakes3 answers 412 to If-Match on an absent key. The driver asks once more
// and tells an absent key from another version; the refusal stands if it cannot.
//
// SPEC ST2
func TestPreconditionFailedOnAnAbsentKey(t *testing.T) {
	t.Parallel()
	fake := gofakes3.New(s3mem.New(), gofakes3.WithLogger(gofakes3.DiscardLog()), gofakes3.WithAutoBucket(true)).Server()
	var statuses []int
	var broken atomic.Bool
	s := at(t, serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && broken.Load() {
			answerError(w, 500, "InternalError")
			return
		}
		fake.ServeHTTP(&statusWriter{w, &statuses}, r)
	})).URL)
	if _, err := s.Create(t.Context(), "other", []byte("x")); err != nil {
		t.Fatal(err)
	}
	statuses = nil
	_, err := s.Replace(t.Context(), "k", []byte("x"), goodTag)
	checkAnswer(t, "replace of nothing", err, notFound, "412")
	if len(statuses) != 2 || statuses[0] != 412 || statuses[1] != 404 {
		t.Errorf("the server answered %v, want 412 and then 404 to the read", statuses)
	}
	statuses = nil
	_, err = s.Replace(t.Context(), "other", []byte("x"), goodTag)
	checkAnswer(t, "stale replace", err, conflict, "")
	if len(statuses) != 1 || statuses[0] != 412 { // and 200 to the read, untold
		t.Errorf("the server answered %v", statuses)
	}
	broken.Store(true)
	_, err = s.Replace(t.Context(), "k", []byte("x"), goodTag)
	checkAnswer(t, "replace of nothing while reads fail", err, conflict, "412")
}

// statusWriter notes the statuses that a handler sets itself.
type statusWriter struct {
	http.ResponseWriter
	statuses *[]int
}

func (w *statusWriter) WriteHeader(status int) {
	*w.statuses = append(*w.statuses, status)
	w.ResponseWriter.WriteHeader(status)
}

// A relative that ignores the condition of a delete is found out by the probe,
// so that nothing rests on the power that its URL declares.
//
// SPEC ST5 ST10
func TestProbeFindsIgnoredDeleteConditions(t *testing.T) {
	t.Parallel()
	s := at(t, fakes3(t).URL)
	r, err := store.Probe(t.Context(), s, store.ProbeOptions{Prefix: store.Prefix("ns", "probe")})
	if err != nil {
		t.Fatal(err)
	}
	if !s.Info().Can.Has(store.CanDeleteIf) || r.DeleteIfSound || !strings.Contains(r.DeleteIfFlaw, "old version") {
		t.Errorf("declared %v, sound %v: %s", s.Info().Can, r.DeleteIfSound, r.DeleteIfFlaw)
	}
}

// forgetful drops conditions on their way.
func forgetful(next http.Handler, headers ...string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, h := range headers {
			r.Header.Del(h)
		}
		next.ServeHTTP(w, r)
	})
}

// Servers that ignore conditions fail the probe, by the property that they lack.
//
// SPEC ST10
// CASE B21
func TestProbeRefusesServersThatIgnoreConditions(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		headers []string
		lacks   store.Property
	}{
		{[]string{"If-Match", "If-None-Match"}, store.CreateRefuses},
		{[]string{"If-None-Match"}, store.CreateRefuses},
		{[]string{"If-Match"}, store.ReplaceRefuses},
	} {
		fake := gofakes3.New(s3mem.New(), gofakes3.WithLogger(gofakes3.DiscardLog()), gofakes3.WithAutoBucket(true)).Server()
		_, err := store.Probe(t.Context(), at(t, serve(t, forgetful(fake, row.headers...)).URL), store.ProbeOptions{Prefix: store.Prefix("ns", "probe")})
		var lack *store.ProbeError
		if !errors.As(err, &lack) || lack.Property != row.lacks {
			t.Errorf("without %v: %v, want a lack of %q", row.headers, err, row.lacks)
		}
	}
}

// So does one that takes no conditions at all, and says so.
//
// SPEC ST10
func TestProbeRefusesServersWithoutConditions(t *testing.T) {
	t.Parallel()
	m := newModel()
	srv := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("If-None-Match") != "" || r.Header.Get("If-Match") != "" {
			answerError(w, 501, "NotImplemented")
			return
		}
		m.ServeHTTP(w, r)
	}))
	_, err := store.Probe(t.Context(), at(t, srv.URL), store.ProbeOptions{Prefix: store.Prefix("ns", "probe")})
	if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "conditional writes") {
		t.Errorf("the probe says %v", err)
	}
}
