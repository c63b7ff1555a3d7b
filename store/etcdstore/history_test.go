package etcdstore

import (
	"os"
	"path/filepath"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/tenure-project/tenure/store"
)

// Versions are worthless after the record changed, even in a history that counts
// the same revisions a second time under the same cluster id: a data directory
// that was put back.
//
// SPEC ST4
// CASE B46
func TestVersionsDoNotComeBackAfterARestore(t *testing.T) {
	t.Parallel()
	n := own(t, nil)
	prefix, saved := fresh(), filepath.Join(t.TempDir(), "saved")
	first := openAt(t, prefix, n.endpoint)
	v, err := first.Create(t.Context(), key, []byte("1"))
	if err != nil {
		t.Fatal(err)
	}
	restart := func(from, to string) {
		n.stop()
		if err := os.RemoveAll(to); err != nil {
			t.Fatal(err)
		}
		if err := os.CopyFS(to, os.DirFS(from)); err != nil {
			t.Fatal(err)
		}
		if err := n.start(); err != nil {
			t.Fatal(err)
		}
		if err := n.ready(); err != nil {
			t.Fatal(err)
		}
	}
	restart(n.cfg.Dir, saved) // a backup, and then life goes on
	holder := openAt(t, prefix, n.endpoint)
	held, err := holder.Replace(t.Context(), key, []byte("2"), v)
	if err != nil {
		t.Fatal(err)
	}
	witness := openAt(t, prefix, n.endpoint)
	if _, err := witness.Get(t.Context(), key, 10); err != nil {
		t.Fatal(err)
	}
	restart(saved, n.cfg.Dir) // the backup is put back
	reconnectTo(t, witness)
	_, err = witness.Get(t.Context(), key, 10)
	kindIs(t, err, store.ErrCorrupt, "Get by one who saw a later revision")
	kindIs(t, witness.Delete(t.Context(), "n/k/scratch"), store.ErrCorrupt, "a write by one who knows that the cluster went back")

	rival := openAt(t, prefix, n.endpoint)
	present, err := rival.Replace(t.Context(), key, []byte("3"), v)
	if err != nil {
		t.Fatal(err)
	}
	a, _ := parseVersion(held)
	b, _ := parseVersion(present)
	if a.revision != b.revision {
		t.Fatalf("the test shows nothing: the revisions are %d and %d", a.revision, b.revision)
	}
	late := openAt(t, prefix, n.endpoint)
	_, err = late.Replace(t.Context(), key, []byte("zombie"), held)
	kindIs(t, err, store.ErrConflict, "Replace from the lost version")
	kindIs(t, late.DeleteIf(t.Context(), key, held), store.ErrConflict, "DeleteIf at the lost version")
	for _, do := range []store.ChangeKind{store.Put, store.Remove, store.Keep} {
		_, err = late.Commit(t.Context(), []store.Change{{Key: "n/k/new"}, {Key: key, Over: held, Do: do}})
		kindIs(t, err, store.ErrConflict, "Commit over the lost version")
	}
	if o, err := late.Get(t.Context(), key, 10); err != nil || string(o.Body) != "3" || o.Version != present {
		t.Errorf("the record is %q at %q, %v", o.Body, o.Version, err)
	}
}

// reconnectTo waits until s reaches its server again.
func reconnectTo(t testing.TB, s *Store) {
	t.Helper()
	for range 1000 {
		_, err := s.Get(t.Context(), "n/k/other", 10)
		if store.KindOf(err) != store.ErrUnavailable {
			return
		}
		sleep(t.Context(), 10e6) // poll
	}
	t.Fatal("no connection again")
}

// Replies of two clusters, or of an older state, end the use of the store.
//
// SPEC ST3 ST4
func TestRepliesOfAnotherHistory(t *testing.T) {
	t.Parallel()
	other := &pb.ResponseHeader{ClusterId: 8, Revision: 20}
	for name, second := range map[string]*pb.ResponseHeader{"another cluster": other, "an older state": header(9)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, write := range []bool{false, true} {
				srv := newScript(t)
				s := srv.open(t)
				srv.ranges(absentAt(10))
				_, err := s.Get(t.Context(), key, 10)
				kindIs(t, err, store.ErrNotFound, "the first Get")
				if write {
					srv.txns(&pb.TxnResponse{Header: second, Succeeded: true, Responses: []*pb.ResponseOp{{Response: &pb.ResponseOp_ResponsePut{}}}})
					_, err = s.Create(t.Context(), key, nil)
					kindIs(t, err, store.ErrUnknown, "a Create that succeeded elsewhere")
				} else {
					srv.ranges(func(*pb.RangeRequest) *pb.RangeResponse { return &pb.RangeResponse{Header: second} })
					_, err = s.Get(t.Context(), key, 10)
					kindIs(t, err, store.ErrCorrupt, "a Get from elsewhere")
				}
				asked := srv.asked.Load()
				_, err = s.Create(t.Context(), key, nil)
				kindIs(t, err, store.ErrCorrupt, "a Create afterwards")
				if srv.asked.Load() != asked {
					t.Error("a request was sent although the store must not be used")
				}
			}
		})
	}
}

// Versions that this store never gave are no version.
//
// SPEC ST4
func TestForeignVersionsMatchNothing(t *testing.T) {
	t.Parallel()
	_, stamp := wrap(nil)
	v := version{12, stamp}
	if got, ok := parseVersion(v.mark()); !ok || got != v {
		t.Errorf("%s was read as %v", v.mark(), got)
	}
	for _, mark := range []store.Version{"", ".", "12", "12.", store.Version("." + stamp), store.Version("0." + stamp), store.Version("-1." + stamp),
		store.Version("012." + stamp), store.Version("+12." + stamp), store.Version("12." + stamp + "A"), store.Version("12." + stamp[1:] + "a"),
		store.Version("12." + stamp + "."), store.Version("99999999999999999999." + stamp)} {
		if got, ok := parseVersion(mark); ok {
			t.Errorf("%q was read as %v", mark, got)
		}
	}
}

// The conditions on the value hold for exactly the values with the stamp, also
// for an empty body, and not for a neighbour in the order of the values.
//
// SPEC ST2
func TestStampIsCompared(t *testing.T) {
	t.Parallel()
	n := shared.node(t)
	s := openAt(t, fresh(), n.endpoint)
	v, err := s.Create(t.Context(), key, nil)
	if err != nil {
		t.Fatal(err)
	}
	exact, _ := parseVersion(v)
	for _, i := range []int{0, stampLength / 2, stampLength - 1} {
		for _, c := range []byte{'2', '7', 'A', 'Z'} {
			if exact.stamp[i] == c {
				continue
			}
			near := version{exact.revision, exact.stamp[:i] + string(c) + exact.stamp[i+1:]}
			_, err := s.Replace(t.Context(), key, nil, near.mark())
			kindIs(t, err, store.ErrConflict, "Replace with another stamp")
		}
	}
	if _, err := s.Replace(t.Context(), key, nil, v); err != nil {
		t.Error(err)
	}
}
