package checkpoint_test

import (
	"errors"
	"testing"

	tenure "github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/authority"
	"github.com/tenure-project/tenure/authority/internal/chaintest"
	"github.com/tenure-project/tenure/store"
)

// A commit under a proof that does not lead here writes no capsule: an invalid one,
// another process's, and one of a leadership that is over.
//
// SPEC CK LA4 LA8
func TestRefusedCommitWritesNothing(t *testing.T) {
	chaintest.Run(t, func(w *chaintest.World) {
		a := lead(w, "a", chaintest.Deployment)
		a.commit(1, authority.Created)
		old := a.p
		a.StepDown()
		a.p = a.Lead()
		for what, change := range map[string]func(p *tenure.Proof){
			"token 0": func(p *tenure.Proof) { p.Token = 0 }, "another process": func(p *tenure.Proof) { p.Incarnation = idA }, "over": func(p *tenure.Proof) { *p = old },
		} {
			p := a.p
			change(&p)
			res, err := a.c.Commit(w.Context(), p, a.capsule(2))
			if err == nil && res.Answer != authority.Fenced || err != nil && !errors.Is(err, store.ErrInvalid) {
				t.Errorf("%s: %v, %v", what, res.Answer, err)
			}
			if n := len(w.Keys(a.A, "capsule")); n != 1 {
				t.Fatalf("%s: %d capsules", what, n)
			}
		}
		a.commit(2, authority.Created)
	})
}
