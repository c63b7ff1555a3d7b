package sqlstore

import (
	"context"
	"database/sql/driver"
	"slices"
	"time"

	"github.com/tenure-project/tenure/internal/standing"
	"github.com/tenure-project/tenure/store"
)

const (
	// lineEvery is about how often the keeper asks whether a line moved, and
	// judgeEvery how often it looks for members that fell silent.
	lineEvery  = 10 * time.Millisecond
	judgeEvery = 500 * time.Millisecond
	// leaveLimit bounds how long Close tries to take the tickets out.
	leaveLimit = 250 * time.Millisecond
	// staleMillis is the age of a ping, by the wall clock, beyond which a member
	// is swept away when another one joins.
	staleMillis = 60_000
)

// lineSchema is the database of the lines. Its user_version is its format.
const lineSchema = `
CREATE TABLE IF NOT EXISTS tenure_waiter (
	member TEXT    NOT NULL PRIMARY KEY,
	ping   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS tenure_queue (
	id     INTEGER PRIMARY KEY,
	key    TEXT NOT NULL,
	member TEXT NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS tenure_queue_key ON tenure_queue (key, id);
PRAGMA user_version = 1;
`

// keeper is the goroutine that carries a process's part in the lines: it joins
// and leaves for its callers, pings, and judges who before them is alive. It is
// the only user of its fields and its connection.
type keeper struct {
	l     *line
	at    driver.Connector
	c     *conn
	place *place
	bell  *bell // tells of writes of other processes
	pace  pace

	lines   map[string][]*ticket // by key, in line order
	joining []*ticket
	leaving []*ticket
	lost    []*ticket        // their rows were taken for those of the dead
	dead    map[string]int64 // members to remove, with their last ping

	seen     map[string]*sign
	version  int64 // of the database, when the lines were last judged
	judged   time.Time
	pinged   time.Time
	lastPing int64
}

// sign is what was last seen of a member, and since when it is unchanged by
// this process's own clock.
type sign struct {
	ping  int64
	since time.Time
	used  bool
}

// loop runs until the store is closed.
func (k *keeper) loop() {
	k.bell = k.l.s.newBell()
	k.pace = pace{usual: lineEvery, bell: k.bell != nil}
	defer k.bell.close()
	for k.l.s.stop.Err() == nil {
		questions := k.takeWishes()
		err := k.open()
		if err == nil {
			err = k.round()
		}
		for _, q := range questions {
			q.answer <- k.judgeWaiting(q.key, err)
		}
		if err != nil && !isBusy(err) {
			k.fail(err)
		}
		k.sleep(err != nil)
	}
	k.end()
}

// takeWishes collects what the callers want.
func (k *keeper) takeWishes() []*question {
	l := k.l
	l.mu.Lock()
	defer l.mu.Unlock()
	k.joining = append(k.joining, l.joining...)
	k.leaving = append(k.leaving, l.leaving...)
	questions := l.questions
	l.joining, l.leaving, l.questions = nil, nil, nil
	return questions
}

// sleep waits for the next round: for a wish if there are no tickets.
func (k *keeper) sleep(busy bool) {
	var next <-chan time.Time
	var rings <-chan struct{}
	if len(k.lines)+len(k.joining)+len(k.leaving)+len(k.lost) > 0 {
		d := k.pace.next()
		if busy {
			d = busyMost
		}
		t := time.NewTimer(jitter(d))
		defer t.Stop()
		next, rings = t.C, k.bell.heard()
	}
	select {
	case <-next:
	case <-rings:
		k.pace.hurry()
	case <-k.l.nudge:
	case <-k.l.s.stop.Done():
	}
}

// open opens the database of the lines, once.
func (k *keeper) open() error {
	if k.c != nil {
		return nil
	}
	if k.at == nil {
		at, err := settings(k.l.path, syncNormal, true)
		if err != nil {
			return err
		}
		k.at = at
	}
	c, err := connect(k.at)
	if err != nil {
		return err
	}
	if err := k.prepare(c); err != nil {
		_ = c.close()
		return err
	}
	k.c, k.version = c, -1
	return nil
}

func (k *keeper) prepare(c *conn) error {
	var level int
	if err := c.row("PRAGMA user_version", nil, &level); err != nil {
		return err
	}
	if level > 1 {
		return store.Errorf(store.ErrNewer, k.l.s.identity, opOpen, "", "%s has format level %d: use a newer tenure", k.l.path, level)
	}
	var mode string
	if err := c.row("PRAGMA journal_mode(WAL)", nil, &mode); err != nil {
		return err
	}
	if level == 0 {
		err := c.atomically(func() error { return c.script(lineSchema) })
		if err != nil {
			return err
		}
	}
	place, err := look(k.l.path)
	k.place = place
	k.bell.hang(k.l.path + "-wal")
	k.pace.hurry() // a commit under way now may have rung already
	return err
}

// round does what is due: writes, then a judgement of the lines.
func (k *keeper) round() error {
	now := time.Now()
	writes := len(k.joining)+len(k.leaving)+len(k.lost)+len(k.dead) > 0
	if writes || len(k.lines) > 0 && now.Sub(k.pinged) >= pingEvery {
		if err := k.write(now); err == nil {
			k.judged = time.Time{} // one's own commits do not move the counter below
		} else if !isBusy(err) {
			return err
		}
	}
	if len(k.lines) == 0 {
		return nil
	}
	version, err := dataVersion(k.c)
	if err != nil || version == k.version && now.Sub(k.judged) < judgeEvery {
		return err
	}
	if err := k.judge(now); err != nil {
		return err
	}
	k.version, k.judged = version, now
	k.bell.hang(k.l.path + "-wal") // which may be a new file
	k.pace.heard = now             // a line that moves is looked at often
	return nil
}

// write carries out, in one transaction, what joins, leaves, is dead or needs a
// ping.
func (k *keeper) write(now time.Time) error {
	if e := k.place.moved(); e != nil {
		return k.reopen(e)
	}
	left := map[*ticket]bool{}
	for _, t := range k.leaving {
		left[t] = true
	}
	joins := slices.DeleteFunc(slices.Concat(k.lost, k.joining), func(t *ticket) bool {
		return left[t] || t.state.Load() == gaveUpJoining
	})
	ids := make([]int64, len(joins))
	ping := max(now.UnixMilli(), k.lastPing+1)
	err := k.c.atomically(func() error {
		if err := k.ping(ping, len(joins) > 0 || k.remain(left)); err != nil {
			return err
		}
		for i, t := range joins {
			if err := k.c.row("INSERT INTO tenure_queue (key, member) VALUES (?, ?) RETURNING id", []any{t.key, k.l.member}, &ids[i]); err != nil {
				return err
			}
		}
		return k.remove(left)
	})
	if err != nil {
		return err
	}
	k.pinged, k.lastPing = now, ping
	k.joining, k.leaving, k.lost = nil, nil, nil
	clear(k.dead)
	k.settle(joins, ids, left)
	return nil
}

// remain reports whether tickets remain in line when those in left are gone.
func (k *keeper) remain(left map[*ticket]bool) bool {
	for _, line := range k.lines {
		if slices.ContainsFunc(line, func(t *ticket) bool { return !left[t] }) {
			return true
		}
	}
	return false
}

// ping shows that this process lives, or takes its row away when it has no
// ticket left. The first ping sweeps up what the long dead left behind.
func (k *keeper) ping(ping int64, member bool) error {
	if !member {
		_, err := k.c.exec("DELETE FROM tenure_waiter WHERE member = ?", k.l.member)
		return err
	}
	if k.pinged.IsZero() {
		if _, err := k.c.exec("DELETE FROM tenure_waiter WHERE ping < ?", ping-staleMillis); err != nil {
			return err
		}
		if _, err := k.c.exec("DELETE FROM tenure_queue WHERE member NOT IN (SELECT member FROM tenure_waiter)"); err != nil {
			return err
		}
	}
	_, err := k.c.exec("INSERT INTO tenure_waiter (member, ping) VALUES (?, ?) ON CONFLICT (member) DO UPDATE SET ping = excluded.ping", k.l.member, ping)
	return err
}

// remove deletes the rows of tickets that were left, and of members that have
// not pinged since they were judged dead.
func (k *keeper) remove(left map[*ticket]bool) error {
	for t := range left {
		if _, err := k.c.exec("DELETE FROM tenure_queue WHERE id = ? AND member = ?", t.id, k.l.member); err != nil {
			return err
		}
	}
	for member, ping := range k.dead {
		if _, err := k.c.exec("DELETE FROM tenure_queue WHERE member = ?1 AND coalesce((SELECT ping FROM tenure_waiter WHERE member = ?1), -1) = ?2", member, ping); err != nil {
			return err
		}
		if _, err := k.c.exec("DELETE FROM tenure_waiter WHERE member = ? AND ping = ?", member, ping); err != nil {
			return err
		}
	}
	return nil
}

// settle brings the local lines up to what was committed.
func (k *keeper) settle(joins []*ticket, ids []int64, left map[*ticket]bool) {
	for key, line := range k.lines {
		if k.lines[key] = slices.DeleteFunc(line, func(t *ticket) bool { return left[t] }); len(k.lines[key]) == 0 {
			delete(k.lines, key)
		}
	}
	for i, t := range joins {
		t.id = ids[i]
		t.place.Move(standing.Unknown)
		if first := t.state.CompareAndSwap(joiningLine, joinedLine); first {
			t.ready <- nil
		} else if t.state.Load() == gaveUpJoining {
			k.leaving = append(k.leaving, t)
		}
		k.lines[t.key] = append(k.lines[t.key], t)
	}
}

// reopen starts anew with the file that is in place, after the old one was
// taken away: every ticket joins again.
func (k *keeper) reopen(moved *store.Error) error {
	for _, line := range k.lines {
		k.lost = append(k.lost, line...)
	}
	clear(k.lines)
	_ = k.c.close()
	k.c, k.pinged = nil, time.Time{}
	moved.Kind, moved.Store, moved.Op = store.ErrUnavailable, k.l.s.identity, "queue"
	return moved
}

// fail tells everybody who waits for this process's part that it is broken.
// Tickets stay: the next round may do better.
func (k *keeper) fail(err error) {
	for _, t := range k.joining {
		if t.state.CompareAndSwap(joiningLine, gaveUpJoining) {
			t.ready <- k.l.s.failed("enqueue", t.key, err)
		}
	}
	k.joining = nil
	for _, line := range k.lines {
		for _, t := range line {
			t.place.Move(standing.At{Before: -1, Err: k.l.s.failed("wait in line", t.key, err)})
		}
	}
}

// end gives up every ticket and closes the database.
func (k *keeper) end() {
	if k.c != nil && !k.pinged.IsZero() {
		limit, cancel := context.WithTimeout(context.Background(), leaveLimit)
		defer cancel()
		_ = whileBusy(limit, func() error {
			return k.c.atomically(func() error {
				if _, err := k.c.exec("DELETE FROM tenure_queue WHERE member = ?", k.l.member); err != nil {
					return err
				}
				return k.ping(0, false)
			})
		})
	}
	if k.c != nil {
		_ = k.c.close()
	}
}
