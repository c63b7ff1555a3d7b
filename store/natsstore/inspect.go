package natsstore

import (
	"context"
	"fmt"

	"github.com/tenure-project/tenure/store"
)

// leastBody is what the largest records of Tenure need.
const leastBody = 512 << 10

// Inspect looks at the bucket's settings and state and says in words what an
// operator should know of. One line is always there: no server tells its
// clients whether it syncs each write (ST16). It asks once and writes nothing.
func (s *Store) Inspect(ctx context.Context) ([]string, error) {
	const op = "inspect"
	if err := s.alive(ctx, op, ""); err != nil {
		return nil, err
	}
	var info struct {
		Config  streamConfig `json:"config"`
		Cluster struct {
			Replicas []struct {
				Name    string `json:"name"`
				Current bool   `json:"current"`
				Offline bool   `json:"offline"`
				Lag     uint64 `json:"lag"`
			} `json:"replicas"`
		} `json:"cluster"`
		State struct {
			Bytes int64 `json:"bytes"`
		} `json:"state"`
	}
	e, o := s.w.query(ctx, s.place.api+"STREAM.INFO."+s.place.stream, struct{}{}, &info)
	switch {
	case o != nil:
		return nil, s.failed(op, "", o)
	case e != nil:
		return nil, store.Wrap(store.ErrUnavailable, s.w.identity, op, "", s.explain(e))
	}
	notes := []string{"whether the servers sync each write cannot be seen from here; every server of the bucket needs " +
		"`sync_interval: always` in its jetstream block, or a power cut takes acknowledged writes of the last two minutes"}
	note := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	c := info.Config
	if flaw := flawOf(c, s.cfg, s.place); flaw != "" {
		note("%s", flaw)
	}
	if c.Storage == "memory" {
		note("the bucket is in memory: it forgets all tokens when its servers restart")
	}
	if c.Replicas == 1 {
		note("one server keeps the bucket: without it there are no leases, and with its disk all tokens are lost")
	}
	if c.Replicas%2 == 0 {
		note("%d replicas survive the loss of no more servers than %d do", c.Replicas, c.Replicas-1)
	}
	if s.replicated && s.cfg.LeaderReads {
		note("reads=leader: for the seconds in which a deposed leader does not know it, reads may be stale")
	}
	if c.MaxPer == 1 {
		note("the bucket keeps one message per subject, so a listing reads every record; 2 are better: nats stream edit %s --max-msgs-per-subject 2", s.place.stream)
	}
	if c.MaxPer > 2 || c.MaxPer < 1 {
		note("the bucket keeps more than two messages per subject (%d); the older ones only cost space", c.MaxPer)
	}
	if c.MaxBytes > 0 && info.State.Bytes > c.MaxBytes/10*8 {
		note("the bucket is almost full: %d of %d bytes (max_bytes); when it is full, leases can be neither taken nor renewed", info.State.Bytes, c.MaxBytes)
	}
	if s.info.MaxBody < leastBody {
		note("the largest record is %d bytes (max_payload, max_msg_size); logs and assignments may need %d", s.info.MaxBody, leastBody)
	}
	for _, r := range info.Cluster.Replicas {
		if r.Offline || !r.Current {
			note("the replica on %s is behind (by %d) or out of reach", r.Name, r.Lag)
		}
	}
	return notes, nil
}
