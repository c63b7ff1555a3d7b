package gcsstore

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"cloud.google.com/go/storage"

	"github.com/tenure-project/tenure/store"
)

// Inspect looks at the settings of the bucket and says in words which of them
// cost money, get in the way or endanger records. It needs the right
// storage.buckets.get, which leases do not need; without it the error is
// ErrDenied. No warning is no proof: access rights and organisation rules are
// not looked at.
func (s *Store) Inspect(ctx context.Context) ([]string, error) {
	if err := store.CtxErr(ctx, s.identity, "inspect", ""); err != nil {
		return nil, err
	}
	if !s.enter() {
		return nil, s.errClosed("inspect", "")
	}
	defer s.leave()
	c, end := s.call(ctx, "inspect", "", false)
	defer end()
	sh := &shot{want: metaForm}
	b, err := s.bucket.Attrs(sh.in(c.ctx))
	if err != nil {
		return nil, c.failed(sh, false, err)
	}
	if status, _ := sh.reply(); status != http.StatusOK || b.Name != s.name {
		return nil, c.failed(sh, false, errors.New("the reply does not describe the bucket"))
	}
	return append(s.retentionWarnings(b), s.otherWarnings(b)...), nil
}

// retentionWarnings are about settings that keep what leases overwrite, or
// remove what they keep.
func (s *Store) retentionWarnings(b *storage.BucketAttrs) []string {
	var out []string
	if p := b.SoftDeletePolicy; p != nil && p.RetentionDuration > 0 {
		out = append(out, fmt.Sprintf("soft delete keeps and bills every overwritten record for %v: gcloud storage buckets update gs://%s --clear-soft-delete",
			p.RetentionDuration.Round(time.Second), s.name))
	}
	if b.VersioningEnabled {
		out = append(out, "object versioning keeps and bills every overwritten record: switch it off, or add a lifecycle rule that deletes noncurrent versions")
	}
	if p := b.RetentionPolicy; p != nil && p.RetentionPeriod > 0 {
		out = append(out, fmt.Sprintf("the retention policy forbids overwriting a record for %v: no lease can be renewed in this bucket", p.RetentionPeriod))
	}
	if b.DefaultEventBasedHold {
		out = append(out, "the default event-based hold forbids overwriting a record: no lease can be renewed in this bucket")
	}
	for _, r := range b.Lifecycle.Rules {
		if !s.applies(r.Condition) {
			continue
		}
		switch r.Action.Type {
		case storage.DeleteAction:
			out = append(out, "a lifecycle rule can delete records that nobody wrote for a while, and with them the highest token: restrict it to other prefixes or to noncurrent versions")
		case storage.SetStorageClassAction:
			out = append(out, "a lifecycle rule can move records to class "+r.Action.StorageClass+", where each write costs more and is billed for a minimum time: restrict it to other prefixes")
		}
	}
	return out
}

// applies reports whether a lifecycle condition can be true of a live record of
// this store. Records have no custom time.
func (s *Store) applies(c storage.LifecycleCondition) bool {
	if c.Liveness == storage.Archived || c.NumNewerVersions > 0 || c.DaysSinceNoncurrentTime > 0 || !c.NoncurrentTimeBefore.IsZero() ||
		c.DaysSinceCustomTime > 0 || !c.CustomTimeBefore.IsZero() {
		return false
	}
	if len(c.MatchesPrefix) == 0 {
		return true
	}
	for _, p := range c.MatchesPrefix {
		if strings.HasPrefix(p, s.prefix) || strings.HasPrefix(s.prefix, p) {
			return true
		}
	}
	return false
}

func (s *Store) otherWarnings(b *storage.BucketAttrs) []string {
	var out []string
	switch b.StorageClass {
	case "", "STANDARD", "MULTI_REGIONAL", "REGIONAL":
	default:
		out = append(out, "the default class "+b.StorageClass+" bills each overwritten record for a minimum time and each write at a higher price: use STANDARD")
	}
	if b.Autoclass != nil && b.Autoclass.Enabled {
		out = append(out, "Autoclass adds a fee and gives leases nothing: use a bucket without it")
	}
	if b.PublicAccessPrevention != storage.PublicAccessPreventionEnforced {
		out = append(out, "public access is not prevented by the bucket itself: enforce it, since records name holders")
	}
	if !b.UniformBucketLevelAccess.Enabled {
		out = append(out, "uniform bucket-level access is off: rights may be given by lists on single objects, which the custom role does not see")
	}
	if b.RequesterPays {
		out = append(out, "requester pays: the store URL needs user_project, and that project is billed")
	}
	return out
}
