package pgstore

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/tenure-project/tenure/internal/standing"
)

// keep is the keeper: it removes the rows of those who left, confirms those who
// stay, and tells them where they stand. It ends when there is no ticket left.
func (l *line) keep() {
	var trouble time.Time // since when looks fail
	for l.s.stop.Err() == nil {
		err := l.round()
		switch {
		case err == nil:
			trouble = time.Time{}
		case trouble.IsZero():
			trouble = time.Now()
		case time.Since(trouble) > troubleLimit:
			l.tellAll(err)
		}
		if l.finished() {
			return
		}
		l.sleep()
	}
	l.leaveAll()
}

// finished reports whether nothing is left to do, and ends the keeper then.
func (l *line) finished() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.tickets)+len(l.leaving)+len(l.lost) > 0 || l.s.stop.Err() != nil {
		return false
	}
	l.running = false
	l.s.hub.forLines(false)
	return true
}

func (l *line) sleep() {
	d := pollEvery
	if l.s.hub.forLines(true) {
		d = l.every
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-l.nudge:
	case <-l.s.stop.Done():
	}
}

// tellAll ends the waiting of everybody in line with err.
func (l *line) tellAll(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range slices.AppendSeq(slices.Clone(l.lost), maps.Values(l.tickets)) {
		t.place.Move(standing.At{Before: -1, Err: l.s.failed(l.s.stop, request{op: "wait in line", key: t.key}, err)})
	}
}

// round does what is due.
func (l *line) round() error {
	ctx, cancel := context.WithTimeout(l.s.stop, roundLimit)
	defer cancel()
	if err := l.removeLeft(ctx); err != nil {
		return err
	}
	if err := l.rejoin(ctx); err != nil {
		return err
	}
	return l.standIn(ctx)
}

// removeLeft removes the rows of tickets that were given up, and tells the other
// processes if somebody stands behind them.
func (l *line) removeLeft(ctx context.Context) error {
	l.mu.Lock()
	leaving := ids(l.leaving)
	l.mu.Unlock()
	if len(leaving) == 0 {
		return nil
	}
	own := l.s.topicNamed("lines")
	r := request{op: "leave the line"}
	if _, err := l.s.exec(ctx, r, l.s.sql.leave, textArg(l.member), textArg(own.channel), idsArg(leaving)); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range leaving {
		delete(l.leaving, id)
	}
	return nil
}

// rejoin puts tickets whose rows are gone at the end of their lines: the server
// crashed or failed over, which empties the lines, or this process was stopped
// for so long that others cleared its rows away.
func (l *line) rejoin(ctx context.Context) error {
	for {
		l.mu.Lock()
		if len(l.lost) == 0 {
			l.mu.Unlock()
			return nil
		}
		t := l.lost[0]
		l.mu.Unlock()
		if !t.left.Load() {
			id, err := l.join(ctx, request{op: "enqueue", key: t.key})
			if err != nil {
				return err
			}
			l.mu.Lock()
			t.id = id
			if t.left.Load() { // meanwhile
				l.leaving[id] = true
			} else {
				l.tickets[id] = t
			}
			l.mu.Unlock()
		}
		l.mu.Lock()
		l.lost = l.lost[1:]
		l.mu.Unlock()
	}
}

// standIn confirms this process's places and learns how many live ones are
// before each.
func (l *line) standIn(ctx context.Context) error {
	l.mu.Lock()
	asked := maps.Clone(l.tickets)
	l.mu.Unlock()
	if len(asked) == 0 {
		return nil
	}
	r := request{op: "wait in line"}
	rows, err := l.s.exec(ctx, r, l.s.sql.standIn, textArg(l.member), idsArg(ids(asked)))
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, row := range rows {
		if len(row) != 2 {
			return errors.New("the server's answer has another shape than asked for")
		}
		id := row.int(0)
		if t := l.tickets[id]; t != nil && t == asked[id] {
			t.place.Move(standing.At{Before: int(row.int(1))})
		}
		delete(asked, id)
	}
	for id, t := range asked {
		if l.tickets[id] == t {
			delete(l.tickets, id)
			l.lost = append(l.lost, t)
			t.place.Move(standing.Unknown)
			l.poke()
		}
	}
	return nil
}

// leaveAll takes every place of this process out, at the end of the store.
func (l *line) leaveAll() {
	limit, cancel := context.WithTimeout(context.Background(), leaveLimit)
	defer cancel()
	c, err := l.s.pool.Acquire(limit)
	if err != nil {
		return // they fall silent
	}
	defer c.Release()
	own := l.s.topicNamed("lines")
	_, _ = send(limit, c.Conn().PgConn(), statement{l.s.sql.leaveAll, []arg{textArg(l.member), textArg(own.channel)}})
}
