package s3store

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode"

	"github.com/aws/smithy-go"

	"github.com/tenure-project/tenure/store"
)

// The operations, as errors name them.
const (
	opGet      = "get"
	opCreate   = "create"
	opReplace  = "replace"
	opDelete   = "delete"
	opDeleteIf = "delete-if"
	opList     = "list"
	opInspect  = "inspect"
	opOpen     = "open"
)

// actions are the rights that each operation takes.
var actions = map[string]string{
	opGet:      "s3:GetObject",
	opCreate:   "s3:PutObject",
	opReplace:  "s3:PutObject and s3:GetObject (If-Match takes both)",
	opDelete:   "s3:DeleteObject",
	opDeleteIf: "s3:DeleteObject and s3:GetObject (If-Match takes both)",
	opList:     "s3:ListBucket",
}

// The codes by what they mean. Only what S3 documents as a refusal is one; every
// other answer to a write leaves its outcome open (ST8, ST9).
var (
	// Refused for load. Not SlowDownWrite: some servers say so after a write that
	// reached a part of the disks.
	throttles = []string{"SlowDown", "TooManyRequests", "RequestLimitExceeded", "Throttling", "ThrottlingException", "RequestThrottled", "BandwidthLimitExceeded", "KMS.ThrottlingException"}
	// Another conditional operation on the key ran at the same moment (CASE B20).
	contended = []string{"ConditionalRequestConflict", "OperationAborted"}
	// The request did not arrive whole.
	garbled = []string{"RequestTimeout", "IncompleteBody", "BadDigest", "XAmzContentSHA256Mismatch"}
	// The credentials themselves are no good any more, or never were.
	stale = []string{"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "InvalidToken", "InvalidAccessKeyId", "SignatureDoesNotMatch"}
	// The bucket is elsewhere.
	elsewhere = []string{"PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"}
	// The server cannot or will not do this, now or later.
	never = []string{"NotImplemented", "MethodNotAllowed", "InvalidRequest", "InvalidArgument", "InvalidBucketName", "EntityTooLarge", "KeyTooLongError", "MissingContentLength", "InvalidURI"}
)

// call is one operation in flight.
type call struct {
	s       *Store
	op, key string
	caller  context.Context // as the caller gave it
	ctx     context.Context // ends also when the store is closed
	flight  flight
	done    func()
}

func (c *call) writes() bool { return c.op != opGet && c.op != opList && c.op != opInspect }

// open is the kind of a failure that leaves the outcome of a write open.
func (c *call) open() error {
	if c.writes() {
		return store.ErrUnknown
	}
	return store.ErrUnavailable
}

func (c *call) fail(kind error, format string, args ...any) error {
	return store.Errorf(kind, c.s.identity, c.op, c.key, format, args...)
}

func (c *call) wrap(kind, cause error, detail string) error {
	e := store.Wrap(kind, c.s.identity, c.op, c.key, cause)
	e.Detail = detail
	return e
}

// judge says what the SDK's error, or its success, really means.
func (c *call) judge(err error) error {
	f := &c.flight
	switch {
	case f.status != 0 && f.status/100 == 2:
		if f.flaw != nil {
			return c.fail(c.open(), "%s, but %v", c.said(), f.flaw)
		}
		if err != nil {
			return c.wrap(c.open(), bare(err), fmt.Sprintf("answered %d, but the answer makes no sense", f.status))
		}
		return nil
	case f.status != 0:
		hint, kind := c.refusal()
		if hint != "" {
			hint += "; "
		}
		return c.fail(kind, "%s%s", hint, c.said())
	case err == nil:
		return c.fail(c.open(), "the client reported success without an answer")
	case !f.started:
		return c.notSent(err)
	}
	kind := store.ErrUnavailable // nothing of it reached the server
	if f.carried.Load() {
		kind = c.open()
	}
	if ended := c.ended(); ended != nil {
		return c.wrap(kind, ended, "")
	}
	return c.wrap(kind, bare(err), "")
}

// ended says why the call was cut off, nil if it was not.
func (c *call) ended() error {
	if c.caller.Err() != nil {
		return context.Cause(c.caller)
	}
	if c.s.life.Err() != nil {
		return errClosed
	}
	return nil
}

// notSent judges a call that ended before a request was made: the SDK found no
// usable credentials, or no address.
func (c *call) notSent(err error) error {
	if ended := c.ended(); ended != nil {
		return c.wrap(store.ErrUnavailable, ended, "ended while credentials were fetched")
	}
	var op *smithy.OperationError // of the service that gives credentials
	inner := err
	for errors.As(inner, &op) && op.ServiceID == "S3" {
		inner = op.Err
	}
	var netErr net.Error
	if errors.As(inner, &op) && op.ServiceID != "S3" && op.ServiceID != "ec2imds" && errors.As(inner, &netErr) {
		return c.wrap(store.ErrUnavailable, bare(err), "the service that gives credentials could not be reached")
	}
	if text := err.Error(); strings.Contains(text, "get identity: ") || strings.Contains(text, "sign request: ") {
		return c.wrap(store.ErrDenied, bare(err), "no usable credentials for "+c.action())
	}
	return c.wrap(store.ErrInvalid, bare(err), "the request could not be made: check region and endpoint")
}

func (c *call) action() string {
	if a := actions[c.op]; a != "" {
		return a
	}
	return c.op
}

// refusal says of an answer that is an error what to do about it, and its kind.
func (c *call) refusal() (hint string, kind error) {
	status, code := c.flight.status, c.flight.fault.Code
	is := func(codes []string) bool { return slices.Contains(codes, code) }
	switch {
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable && is(throttles):
		return "refused for load", store.ErrUnavailable
	case status == http.StatusNotImplemented && code == "NotImplemented":
		return "the server lacks what leases need, such as conditional writes", store.ErrInvalid
	case status >= 500:
		return "", c.open()
	case status < 400:
		return c.redirected()
	case code == "NoSuchBucket":
		return fmt.Sprintf("the bucket %q does not exist there: check its name and the endpoint", c.s.bucket), store.ErrInvalid
	case is(throttles):
		return "refused for load", store.ErrUnavailable
	case is(stale) || strings.HasPrefix(code, "KMS.") || status == http.StatusUnauthorized || status == http.StatusForbidden:
		return c.denied(), store.ErrDenied
	case status == http.StatusPreconditionFailed:
		return "", c.unmet()
	case status == http.StatusNotFound && code == "NoSuchKey":
		return "", c.absent()
	case status == http.StatusNotFound:
		return "not found, but not said as S3 says it of an absent key: is this the right endpoint, or did a proxy answer?", c.open()
	case status == http.StatusConflict && is(contended), is(garbled):
		return "", store.ErrUnavailable
	case is(elsewhere):
		return c.redirected()
	case is(never):
		return "", store.ErrInvalid
	}
	return "", c.open()
}

// unmet is what a failed condition means.
func (c *call) unmet() error {
	switch c.op {
	case opCreate:
		return store.ErrExists
	case opReplace, opDeleteIf:
		return store.ErrConflict
	}
	return c.open() // no condition was sent
}

// absent is what NoSuchKey means.
func (c *call) absent() error {
	if c.op != opCreate && c.op != opList {
		return store.ErrNotFound
	}
	return c.open()
}

func (c *call) redirected() (hint string, kind error) {
	region := c.flight.fault.Region
	if r := c.flight.header.Get("X-Amz-Bucket-Region"); r != "" {
		region = r
	}
	switch code := c.flight.fault.Code; {
	case code == "TemporaryRedirect":
		return "the bucket is not yet known at this address; redirects are not followed", store.ErrUnavailable
	case !slices.Contains(elsewhere, code):
		return "redirects are not followed", c.open()
	case region != "":
		return fmt.Sprintf("the bucket is in the region %s: add region=%s to the URL", clean(region, 40), clean(region, 40)), store.ErrInvalid
	}
	return "the bucket is not in this region: add region=... to the URL", store.ErrInvalid
}

// denied names the missing right, or what is wrong with the credentials.
func (c *call) denied() string {
	switch code := c.flight.fault.Code; {
	case strings.HasPrefix(code, "Expired"), code == "TokenRefreshRequired", code == "InvalidToken":
		return "the credentials for " + c.action() + " have expired or been withdrawn; they are read again at the next call"
	case code == "InvalidAccessKeyId":
		return "the access key for " + c.action() + " is not known there"
	case code == "SignatureDoesNotMatch":
		return "the secret key for " + c.action() + " is wrong, or a proxy changed the request"
	case code == "RequestTimeTooSkewed":
		return "this machine's clock is more than 15 minutes off, so " + c.action() + " was refused"
	case code == "InvalidObjectState":
		return "the record is in an archive, where a lifecycle rule put it: restore it, and exempt the prefix from the rule"
	case strings.HasPrefix(code, "KMS."):
		return "the bucket's key cannot be used: " + c.action() + " takes kms:GenerateDataKey and kms:Decrypt there too"
	case c.op == opGet:
		return "missing right: s3:GetObject; or the key is absent and s3:ListBucket is missing, without which S3 says so of absent keys"
	}
	return "missing right: " + c.action()
}

// said is the answer in words, without secrets.
func (c *call) said() string {
	f := &c.flight
	var b strings.Builder
	fmt.Fprintf(&b, "answered %d", f.status)
	if f.fault.Code != "" {
		b.WriteString(" " + clean(f.fault.Code, 60))
	} else if f.status/100 != 2 {
		b.WriteString(" without a code")
	}
	if m := f.fault.Message; m != "" {
		for _, secret := range f.auth {
			if secret != "" {
				m = strings.ReplaceAll(m, secret, "***")
			}
		}
		b.WriteString(": " + clean(m, 200))
	}
	if id := f.header.Get("X-Amz-Request-Id"); id != "" {
		b.WriteString(" (request " + clean(id, 40) + ")")
	}
	return b.String()
}

// clean is text from a server as a message can bear it.
func clean(s string, most int) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, strings.ToValidUTF8(s, "?"))
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "..."
	}
	return s
}

// bare takes the SDK's wrapping off, which repeats the operation and the
// address.
func bare(err error) error {
	if u := (*url.Error)(nil); errors.As(err, &u) {
		return u.Err
	}
	if op := (*smithy.OperationError)(nil); errors.As(err, &op) {
		return op.Err
	}
	return err
}
