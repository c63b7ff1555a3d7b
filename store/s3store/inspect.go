package s3store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/tenure-project/tenure/store"
)

// setting is one part of a bucket's configuration.
type setting struct {
	name, action, root string
	none               []string // codes that say that it is not configured
}

var (
	versioning  = setting{"versioning", "s3:GetBucketVersioning", "VersioningConfiguration", nil}
	lifecycle   = setting{"lifecycle rules", "s3:GetLifecycleConfiguration", "LifecycleConfiguration", []string{"NoSuchLifecycleConfiguration"}}
	objectLock  = setting{"object lock", "s3:GetBucketObjectLockConfiguration", "ObjectLockConfiguration", []string{"ObjectLockConfigurationNotFoundError", "NoSuchObjectLockConfiguration"}}
	replication = setting{"replication", "s3:GetReplicationConfiguration", "ReplicationConfiguration", []string{"ReplicationConfigurationNotFoundError"}}
)

// Inspect looks at the bucket's configuration and returns what an operator
// should know, one sentence each: settings that make leases costly or unsafe,
// and what could not be looked at: missing rights are told in a sentence. The
// error is that of an ended context. No call of the store needs these rights
// (ST10, ST16).
func (s *Store) Inspect(ctx context.Context) ([]string, error) {
	var out []string
	versions, w := s.inspectVersioning(ctx)
	out = append(out, w...)
	out = append(out, s.inspectLifecycle(ctx, versions)...)
	out = append(out, s.inspectLock(ctx)...)
	out = append(out, s.inspectReplication(ctx)...)
	return out, store.CtxErr(ctx, s.identity, opInspect, "")
}

// ask reads one setting. There is none if both results are zero.
func ask[T any](ctx context.Context, s *Store, what setting, read func(ctx context.Context) (*T, error)) (*T, []string) {
	c, err := s.begin(ctx, opInspect, "")
	if err != nil {
		return nil, []string{fmt.Sprintf("not checked: %s (%v)", what.name, err)}
	}
	defer c.done()
	c.flight.want = what.root
	out, err := read(c.ctx)
	err = c.judge(err)
	switch {
	case err == nil:
		return out, nil
	case slices.Contains(what.none, c.flight.fault.Code):
		return nil, nil
	case errors.Is(err, store.ErrDenied):
		return nil, []string{fmt.Sprintf("not checked: %s (it takes %s)", what.name, what.action)}
	case errors.Is(err, store.ErrInvalid):
		return nil, []string{fmt.Sprintf("not checked: %s (this server does not tell)", what.name)}
	}
	return nil, []string{fmt.Sprintf("not checked: %s (%v)", what.name, err)}
}

func (s *Store) inspectVersioning(ctx context.Context) (kept bool, warn []string) {
	out, warn := ask(ctx, s, versioning, func(ctx context.Context) (*s3.GetBucketVersioningOutput, error) {
		return s.client.GetBucketVersioning(ctx, &s3.GetBucketVersioningInput{Bucket: &s.bucket})
	})
	if out == nil || out.Status != types.BucketVersioningStatusEnabled {
		return false, warn
	}
	return true, []string{"versioning is on: every renewal leaves an old version behind, which is stored and paid for"}
}

func (s *Store) inspectLifecycle(ctx context.Context, versions bool) []string {
	out, warn := ask(ctx, s, lifecycle, func(ctx context.Context) (*s3.GetBucketLifecycleConfigurationOutput, error) {
		return s.client.GetBucketLifecycleConfiguration(ctx, &s3.GetBucketLifecycleConfigurationInput{Bucket: &s.bucket})
	})
	if len(warn) > 0 {
		return warn
	}
	ends := false // something removes old versions
	if out != nil {
		for _, rule := range out.Rules {
			if rule.Status != types.ExpirationStatusEnabled || !s.touches(rule) {
				continue
			}
			ends = ends || rule.NoncurrentVersionExpiration != nil
			if e := rule.Expiration; e != nil && (e.Days != nil || e.Date != nil) {
				warn = append(warn, fmt.Sprintf("the lifecycle rule %q removes records that rest: a lease that nobody took for that long "+
					"starts again at a low token; exempt the prefix", clean(aws.ToString(rule.ID), 60)))
			}
			if len(rule.Transitions) > 0 {
				warn = append(warn, fmt.Sprintf("the lifecycle rule %q moves records to another storage class, which may make them slow, "+
					"costly or unreadable; exempt the prefix", clean(aws.ToString(rule.ID), 60)))
			}
		}
	}
	if versions && !ends {
		warn = append(warn, "no lifecycle rule removes old versions under the prefix: add one with NoncurrentVersionExpiration")
	}
	return warn
}

// touches reports whether a rule may apply to a record. Filters by tag or size
// may.
func (s *Store) touches(rule types.LifecycleRule) bool {
	//lint:ignore SA1019 older rules have it here
	prefix := aws.ToString(rule.Prefix)
	if f := rule.Filter; f != nil {
		prefix = aws.ToString(f.Prefix)
		if f.And != nil {
			prefix = aws.ToString(f.And.Prefix)
		}
	}
	return strings.HasPrefix(s.base, prefix) || strings.HasPrefix(prefix, s.base)
}

func (s *Store) inspectLock(ctx context.Context) []string {
	out, warn := ask(ctx, s, objectLock, func(ctx context.Context) (*s3.GetObjectLockConfigurationOutput, error) {
		return s.client.GetObjectLockConfiguration(ctx, &s3.GetObjectLockConfigurationInput{Bucket: &s.bucket})
	})
	if out == nil || out.ObjectLockConfiguration == nil || out.ObjectLockConfiguration.ObjectLockEnabled != types.ObjectLockEnabledEnabled {
		return warn
	}
	if r := out.ObjectLockConfiguration.Rule; r != nil && r.DefaultRetention != nil {
		return []string{"object lock with a default retention: no old version of a record can be removed until it ends, and writes without a checksum are refused; use another bucket"}
	}
	return []string{"object lock is on: it takes versioning, so every renewal leaves an old version behind"}
}

func (s *Store) inspectReplication(ctx context.Context) []string {
	out, warn := ask(ctx, s, replication, func(ctx context.Context) (*s3.GetBucketReplicationOutput, error) {
		return s.client.GetBucketReplication(ctx, &s3.GetBucketReplicationInput{Bucket: &s.bucket})
	})
	if out == nil || out.ReplicationConfiguration == nil {
		return warn
	}
	for _, rule := range out.ReplicationConfiguration.Rules {
		if rule.Status == types.ReplicationRuleStatusEnabled {
			return []string{"the bucket is replicated: the copy is behind, so leases must never be taken there; after a failover raise the tokens with \"tenure jump\" first"}
		}
	}
	return warn
}
