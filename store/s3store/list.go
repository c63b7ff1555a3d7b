package s3store

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/tenure-project/tenure/store"
)

// List yields the keys with prefix after the key after, in byte order (ST6). No
// connection is held while the caller looks at a page.
func (s *Store) List(ctx context.Context, prefix, after string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		in := &s3.ListObjectsV2Input{Bucket: &s.bucket, Prefix: aws.String(s.base + prefix), EncodingType: types.EncodingTypeUrl}
		if start := keyPart(after); start != "" {
			in.StartAfter = aws.String(s.base + start + mark)
		}
		if keyPart(prefix) != prefix { // no key starts so
			if err := store.CtxErr(ctx, s.identity, opList, ""); err != nil {
				yield("", err)
			}
			return
		}
		last := ""
		for {
			page, next, err := s.page(ctx, in, &last)
			if err != nil {
				yield("", err)
				return
			}
			for _, key := range page {
				if key > after && strings.HasPrefix(key, prefix) && !yield(key, nil) {
					return
				}
			}
			if next == "" {
				return
			}
			in.StartAfter, in.ContinuationToken = nil, &next
		}
	}
}

// page fetches one page and returns its keys and where the next begins, "" if
// there is none. last is the name that ended the page before: names must rise,
// or the listing would be out of order or never end.
func (s *Store) page(ctx context.Context, in *s3.ListObjectsV2Input, last *string) (keys []string, next string, err error) {
	c, err := s.begin(ctx, opList, "")
	if err != nil {
		return nil, "", err
	}
	defer c.done()
	c.flight.want = "ListBucketResult"
	out, err := s.client.ListObjectsV2(c.ctx, in)
	if err := c.settled(err); err != nil {
		return nil, "", err
	}
	if c.flight.status != http.StatusOK {
		return nil, "", c.fail(store.ErrUnavailable, "%s, which S3 does not say of a listing", c.said())
	}
	for _, object := range out.Contents {
		name := aws.ToString(object.Key)
		if out.EncodingType == types.EncodingTypeUrl {
			if name, err = url.QueryUnescape(name); err != nil {
				return nil, "", c.fail(store.ErrCorrupt, "the listing has the name %q, which is not encoded as it says", clean(name, 80))
			}
		}
		if name <= *last {
			return nil, "", c.fail(store.ErrCorrupt, "the listing is out of order: %q comes after %q", clean(name, 80), clean(*last, 80))
		}
		*last = name
		if key, ok := s.keyOf(name); ok {
			keys = append(keys, key)
		}
	}
	if !aws.ToBool(out.IsTruncated) {
		return keys, "", nil
	}
	next = aws.ToString(out.NextContinuationToken)
	if next == "" || next == aws.ToString(in.ContinuationToken) {
		return nil, "", c.fail(store.ErrCorrupt, "the listing says that it goes on, but not where")
	}
	return keys, next, nil
}

// keyOf is the key that an object holds. Objects that are none of ours, such as
// the folders that some tools make, have none.
func (s *Store) keyOf(name string) (string, bool) {
	key, ok := strings.CutPrefix(name, s.base)
	if ok {
		key, ok = strings.CutSuffix(key, mark)
	}
	return key, ok && store.CheckKey(key) == nil
}

// keyPart is the longest beginning of s that a key can have.
func keyPart(s string) string {
	for i := 0; i < len(s); i++ {
		if c := s[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && !strings.ContainsRune("/=_-", rune(c)) {
			return s[:i]
		}
	}
	return s
}
