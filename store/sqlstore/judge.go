package sqlstore

import (
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/tenure-project/tenure/internal/standing"
)

// judge counts, for every ticket of this process, the live ones before it, and
// notes which members are dead and which of its own rows are missing.
func (k *keeper) judge(now time.Time) error {
	for _, g := range k.seen {
		g.used = false
	}
	for key, line := range k.lines {
		if err := k.judgeLine(key, line, now); err != nil {
			return err
		}
	}
	for member, g := range k.seen {
		if !g.used {
			delete(k.seen, member)
		}
	}
	return nil
}

func (k *keeper) judgeLine(key string, line []*ticket, now time.Time) error {
	const query = `SELECT q.id, q.member, coalesce(w.ping, -1) FROM tenure_queue q LEFT JOIN tenure_waiter w ON w.member = q.member
		WHERE q.key = ? AND q.id <= ? ORDER BY q.id`
	mine := map[int64]*ticket{}
	for _, t := range line {
		mine[t.id] = t
	}
	before := 0
	err := k.c.rows(query, []any{key, line[len(line)-1].id}, func(into func(...any) error) error {
		var id, ping int64
		var member string
		if err := into(&id, &member, &ping); err != nil {
			return err
		}
		if t := mine[id]; t != nil && member == k.l.member {
			t.place.Move(standing.At{Before: before})
			delete(mine, id)
			before++
		} else if k.alive(member, ping, now) {
			before++
		}
		return nil
	})
	if err != nil {
		return err
	}
	k.rejoin(key, mine)
	return nil
}

// rejoin puts tickets whose rows are missing at the end again: this process
// was stopped for so long that others took it for dead.
func (k *keeper) rejoin(key string, missing map[int64]*ticket) {
	if len(missing) == 0 {
		return
	}
	k.lines[key] = slices.DeleteFunc(k.lines[key], func(t *ticket) bool {
		gone := missing[t.id] == t
		if gone {
			k.lost = append(k.lost, t)
			t.place.Move(standing.Unknown)
		}
		return gone
	})
	if len(k.lines[key]) == 0 {
		delete(k.lines, key)
	}
}

// alive reports whether a member pinged within deadAfter of this process's own
// clock, and notes it for removal if not.
func (k *keeper) alive(member string, ping int64, now time.Time) bool {
	if member == k.l.member {
		return false // a row that is being removed
	}
	g := k.seen[member]
	if g == nil || g.ping != ping {
		g = &sign{ping: ping, since: now}
		k.seen[member] = g
	}
	g.used = true
	if now.Sub(g.since) < deadAfter {
		return true
	}
	k.dead[member] = ping
	return false
}

// judgeWaiting answers whether anybody who pinged lately stands in line. It goes
// by the wall clock: a caller who just came has watched nobody yet, and a wrong
// answer costs a place at most.
func (k *keeper) judgeWaiting(key string, err error) answer {
	const query = `SELECT 1 FROM tenure_queue q JOIN tenure_waiter w ON w.member = q.member
		WHERE q.key = ? AND abs(w.ping - ?) < ? LIMIT 1`
	if err != nil {
		return answer{err: err}
	}
	var one int
	err = k.c.row(query, []any{key, nowMillis(), deadAfter.Milliseconds()}, &one)
	if errors.Is(err, sql.ErrNoRows) {
		return answer{}
	}
	return answer{yes: err == nil, err: err}
}
