package filestore

import (
	"os"
	"syscall"
	"testing"
)

// Two users whose only common group is that of the directory write one record,
// stand in one line, and delete what the other made. Only root can play both;
// for others this is TestSharedWithAGroup with one user.
func TestSharedByTwoUsers(t *testing.T) {
	t.Parallel()
	group := otherGroup(t)
	path := shared(t, group)
	var other *syscall.Credential
	if os.Geteuid() == 0 {
		other = &syscall.Credential{Uid: nobody, Gid: nobody - 1, Groups: []uint32{uint32(group)}}
	}
	s := opened(t, path)
	v := create(t, s, sleeperKey, "0")
	does := func(p part) {
		t.Helper()
		p.Role, p.Path, p.User = "write", path, other
		pr := start(t, p)
		pr.expect("ended")
		if code := pr.wait(); code != 0 {
			t.Errorf("the other user's process ended with %d", code)
		}
	}
	does(part{Op: "replace", Key: sleeperKey, Body: "theirs", Version: v})
	got, v := body(t, s, sleeperKey)
	if got != "theirs" {
		t.Errorf("after the other user's write the record holds %q", got)
	}
	replace(t, s, sleeperKey, "ours", v)
	does(part{Op: "create", Key: "ns/lease/new", Body: "theirs"})
	does(part{Op: "create", Key: "other/lease/new", Body: "theirs"})
	does(part{Op: "delete", Key: sleeperKey})
	holds(t, s, sleeperKey, "-")
	create(t, s, sleeperKey, "again")
	create(t, s, "other/lease/ours", "0")
	must(t, s.Delete(within(t), "ns/lease/new"))

	ticket, err := s.Enqueue(within(t), sleeperKey)
	must(t, err)
	theirs := start(t, part{Role: "wait", Path: path, Key: sleeperKey, User: other})
	theirs.expect("stands")
	ticket.Leave()
	theirs.expect("turn")
	theirs.tell("")
	theirs.expect("left")
	checkGroup(t, path, group)
}
