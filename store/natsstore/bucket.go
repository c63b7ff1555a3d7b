package natsstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tenure-project/tenure/store"
)

// place is what the driver knows of the bucket.
type place struct {
	stream   string
	api      string // what API subjects start with
	root     string // what the bucket's subjects start with
	created  time.Time
	replicas int
	history  int64
	maxMsg   int64 // the largest message, -1 for no limit of the stream's own
	young    bool  // made a moment ago
}

// streamConfig is what the driver says, and wants to know, of a stream.
type streamConfig struct {
	Name         string         `json:"name"`
	Description  string         `json:"description,omitempty"`
	Subjects     []string       `json:"subjects,omitempty"`
	Retention    string         `json:"retention"`
	Storage      string         `json:"storage"`
	Discard      string         `json:"discard"`
	Replicas     int            `json:"num_replicas"`
	MaxPer       int64          `json:"max_msgs_per_subject"`
	MaxMsgs      int64          `json:"max_msgs"`
	MaxBytes     int64          `json:"max_bytes"`
	MaxAge       time.Duration  `json:"max_age"`
	MaxMsgSize   int64          `json:"max_msg_size"`
	MaxConsumers int            `json:"max_consumers"`
	Duplicates   time.Duration  `json:"duplicate_window,omitempty"`
	FirstSeq     uint64         `json:"first_seq,omitempty"`
	AllowDirect  bool           `json:"allow_direct"`
	MirrorDirect bool           `json:"mirror_direct"`
	AllowRollup  bool           `json:"allow_rollup_hdrs"`
	DenyDelete   bool           `json:"deny_delete"`
	NoAck        bool           `json:"no_ack,omitempty"`
	Sealed       bool           `json:"sealed,omitempty"`
	NewPer       bool           `json:"discard_new_per_subject,omitempty"`
	Counter      bool           `json:"allow_msg_counter,omitempty"`
	Persist      string         `json:"persist_mode,omitempty"`
	Mirror       *struct{}      `json:"mirror,omitempty"`
	Sources      []struct{}     `json:"sources,omitempty"`
	Transform    *struct{}      `json:"subject_transform,omitempty"`
	Metadata     map[string]any `json:"metadata,omitempty"`
}

type streamInfo struct {
	Config  streamConfig `json:"config"`
	Created time.Time    `json:"created"`
	Now     time.Time    `json:"ts"` // by the server's clock, as Created
	State   struct {
		Subjects map[string]uint64 `json:"subjects"`
	} `json:"state"`
	Total  int `json:"total"`
	Offset int `json:"offset"`
	Limit  int `json:"limit"`
}

// youth is how long it may take until every server of a cluster knows who takes
// the writes of a new bucket.
const youth = 10 * time.Second

// settle waits until a bucket that was made a moment ago takes writes that are
// sent through this server, so that the first one does not fail. Any answer
// will do.
func (s *Store) settle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, youth)
	defer cancel()
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, 200*time.Millisecond) {
		_, o := s.publish(ctx, s.place.barrier(), nats.Header{}, nil)
		if o == nil || o.err != errNobody {
			return
		}
		pause := time.NewTimer(wait)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return
		}
	}
}

// find looks the bucket up, or makes it, and refuses one that would break the
// contract.
func find(ctx context.Context, w *wire, cfg Config) (place, error) {
	stream := "KV_" + cfg.Bucket
	p := place{stream: stream, api: "$JS.API.", root: "$KV." + cfg.Bucket + "."}
	if cfg.Domain != "" {
		p.api = "$JS." + cfg.Domain + ".API."
	}
	var info streamInfo
	e, o := w.query(ctx, p.api+"STREAM.INFO."+stream, struct{}{}, &info)
	if o == nil && e != nil && e.ErrCode == codeNoStream && !cfg.MustExist {
		info = streamInfo{}
		e, o = w.query(ctx, p.api+"STREAM.CREATE."+stream, fresh(w, cfg, time.Now()), &info)
		if o == nil && e != nil && e.ErrCode == codeNameInUse { // another process was faster
			e, o = w.query(ctx, p.api+"STREAM.INFO."+stream, struct{}{}, &info)
		}
	}
	switch {
	case o != nil && o.sent && o.err == errLost:
		return p, store.Wrap(store.ErrUnavailable, w.identity, opOpen, "", o.err)
	case o != nil && o.kind == store.ErrUnavailable && o.err == errNobody:
		return p, store.Errorf(store.ErrUnavailable, w.identity, opOpen, "",
			"no server answers for JetStream: it is not enabled for this account, the domain is wrong, or the cluster has no leader now")
	case o != nil:
		return p, store.Wrap(o.kind, w.identity, opOpen, "", o.err)
	case e != nil:
		return p, openError(w, cfg, e)
	}
	age := info.Now.Sub(info.Created)
	p.young = age >= 0 && age < youth
	p.created, p.replicas, p.history, p.maxMsg = info.Created, info.Config.Replicas, info.Config.MaxPer, info.Config.MaxMsgSize
	if flaw := flawOf(info.Config, cfg, p); flaw != "" {
		return p, store.Errorf(store.ErrInvalid, w.identity, opOpen, "", "%s", flaw)
	}
	return p, nil
}

// openError is the error for what the server said when the bucket was opened.
func openError(w *wire, cfg Config, e *apiError) error {
	kind, detail := store.ErrUnavailable, ""
	switch e.ErrCode {
	case codeNoStream:
		kind, detail = store.ErrInvalid, fmt.Sprintf("there is no bucket %q; leave out create=no to make it", cfg.Bucket)
	case codeNotEnabled, codeNotEnabledAccount:
		detail = "JetStream is not enabled for this account"
	case codeNoPeers, codeClusterNotAvail, codeOffline, codeInsufficient, codeAccountResources, codeStorageResources, codeMemoryResources:
	default:
		if e.Code == 400 {
			kind = store.ErrInvalid
		}
		detail = fmt.Sprintf("the bucket %q could not be opened", cfg.Bucket)
	}
	err := store.Wrap(kind, w.identity, opOpen, "", e)
	err.Detail = detail
	return err
}

// fresh is the stream that the driver makes: two messages per subject, so that
// a listing can tell a deleted key by their number, and no limit that removes
// any.
func fresh(w *wire, cfg Config, now time.Time) streamConfig {
	c := streamConfig{
		Name: "KV_" + cfg.Bucket, Description: "Tenure leases", Subjects: []string{"$KV." + cfg.Bucket + ".>"},
		Retention: "limits", Storage: "file", Discard: "new", Replicas: cfg.Replicas,
		MaxPer: 2, MaxMsgs: -1, MaxBytes: -1, MaxMsgSize: -1, MaxConsumers: -1,
		FirstSeq: firstSequence(now), AllowRollup: true, DenyDelete: true,
	}
	if cfg.MaxBytes > 0 {
		c.MaxBytes = cfg.MaxBytes
	}
	if cfg.Memory {
		c.Storage = "memory"
	}
	if c.Replicas == 0 {
		c.Replicas = 1
		if w.nc.ConnectedClusterName() != "" {
			c.Replicas = 3
		}
	}
	return c
}

// flawOf says why leases must not be kept in a stream, and how to mend it. It
// is empty if they may.
func flawOf(c streamConfig, cfg Config, p place) string {
	edit := "; mend it with: nats stream edit " + p.stream + " "
	switch {
	case c.AllowDirect:
		return "the bucket allows direct gets (allow_direct), which a lagging replica answers" + edit + "--no-allow-direct"
	case c.MirrorDirect:
		return "the bucket allows direct gets from mirrors (mirror_direct), which lag" + edit + "--no-allow-mirror-direct"
	case c.Mirror != nil || len(c.Sources) > 0:
		return "the bucket is filled from another stream (mirror or sources); it takes no conditional writes. Use the bucket it comes from, or another name"
	case c.Transform != nil:
		return "the bucket renames subjects (subject_transform). Use another bucket"
	case c.MaxAge > 0:
		return fmt.Sprintf("the bucket removes records after %v (max_age, the bucket's TTL), which would give tokens out twice", c.MaxAge) + edit + "--max-age 0"
	case c.Retention != "limits":
		return fmt.Sprintf("the bucket's retention is %q, which removes records. Use a new bucket", c.Retention)
	case c.Discard != "new" && (c.MaxMsgs > 0 || c.MaxBytes > 0):
		return "the bucket removes its oldest records when it is full (discard old, with max_msgs or max_bytes)" + edit + "--discard new"
	case c.NewPer:
		return "the bucket refuses to replace records (discard_new_per_subject)" + edit + "--no-discard-per-subject"
	case c.NoAck:
		return "the bucket does not acknowledge writes (no_ack)" + edit + "--ack"
	case c.Sealed:
		return "the bucket is sealed: nothing can be written any more. Use a new bucket"
	case c.Counter:
		return "the bucket is one of counters (allow_msg_counter). Use a new bucket"
	case c.Persist == "async":
		return "the bucket acknowledges before it writes (persist_mode async). Use a new bucket"
	case c.Storage == "memory" && !cfg.Memory:
		return "the bucket is in memory: it forgets tokens when its servers restart. Use a bucket in files, or say memory=yes where that does not matter"
	case cfg.Replicas > 0 && c.Replicas != cfg.Replicas:
		return fmt.Sprintf("the bucket has %d replicas and the URL says %d", c.Replicas, cfg.Replicas) + edit + "--replicas " + strconv.Itoa(cfg.Replicas)
	case len(c.Subjects) != 1 || c.Subjects[0] != p.root+">":
		return fmt.Sprintf("the stream %s keeps the subjects %q, not those of a bucket. Use another bucket", p.stream, c.Subjects)
	}
	return ""
}

// subject is where the records of key are. Every element is a token of its
// own, so that rights can be given by namespace.
func (p place) subject(key string) string { return p.root + strings.ReplaceAll(key, "/", ".") }

// key undoes subject. ok is false for what is no record.
func (p place) key(subject string) (key string, ok bool) {
	rest, found := strings.CutPrefix(subject, p.root)
	if !found {
		return "", false
	}
	key = strings.ReplaceAll(rest, ".", "/")
	return key, store.CheckKey(key) == nil
}

// barrier is the subject of the writes that show that the leader leads. It is
// the subject of no key, which have no capital letters.
func (p place) barrier() string { return p.root + "SYNC" }
