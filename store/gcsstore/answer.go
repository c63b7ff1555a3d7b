package gcsstore

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"unicode"

	"google.golang.org/api/googleapi"

	"github.com/tenure-project/tenure/store"
)

// answer is what the server said when it did not say yes.
type answer struct {
	code    int
	reason  string // the machine-readable reason; may be empty
	message string // as it may be shown to people
}

// Error is the answer in words.
func (a *answer) Error() string {
	text := fmt.Sprintf("the server answered %d", a.code)
	if a.reason != "" {
		text += " " + a.reason
	}
	if a.message != "" {
		text += ": " + a.message
	}
	return text
}

// answerOf digs the server's answer out of the client library's error; nil if
// there was none. hide is kept out of its text.
func answerOf(err error, hide string) *answer {
	var g *googleapi.Error
	if !errors.As(err, &g) {
		return nil
	}
	a := &answer{code: g.Code, message: g.Message}
	if len(g.Errors) > 0 {
		a.reason = g.Errors[0].Reason
	}
	if a.message == "" && a.reason == "" { // downloads leave the body as it came
		a.message = g.Body
		var reply struct {
			Error struct {
				Message string
				Errors  []struct{ Reason string }
			}
		}
		if json.Unmarshal([]byte(g.Body), &reply) == nil && reply.Error.Message != "" {
			a.message = reply.Error.Message
			if len(reply.Error.Errors) > 0 {
				a.reason = reply.Error.Errors[0].Reason
			}
		}
	}
	a.reason, a.message = clean(a.reason, hide), clean(a.message, hide)
	return a
}

// noObject reports whether a 404 says in so many words that the object is
// missing. Reason and code are the same for a missing bucket.
func (a *answer) noObject() bool {
	return a.code == http.StatusNotFound && strings.HasPrefix(a.message, "No such object: ")
}

// noBucket reports whether a 404 says that the bucket is missing.
func (a *answer) noBucket() bool {
	return a.code == http.StatusNotFound && strings.HasPrefix(a.message, "The specified bucket does not exist")
}

// condition reports whether a 412 is about the condition that was sent. Others
// are about rules of the organisation.
func (a *answer) condition() bool {
	return a.code == http.StatusPreconditionFailed && a.reason == "conditionNotMet"
}

// kind says what an answer means, apart from those (404, 412) that depend on
// the operation. Of a write, only answers that certainly refuse it are not
// ErrUnknown.
func (a *answer) kind(write bool) error {
	switch a.code {
	case http.StatusUnauthorized:
		return store.ErrDenied
	case http.StatusForbidden:
		if a.throttle() {
			return store.ErrUnavailable
		}
		return store.ErrDenied
	case http.StatusTooManyRequests:
		return store.ErrUnavailable
	case http.StatusPreconditionFailed:
		if a.reason == "orgPolicyConstraintFailed" {
			return store.ErrDenied
		}
		return store.ErrUnavailable
	case http.StatusNotFound:
		if a.noBucket() {
			return store.ErrInvalid
		}
		return store.ErrUnavailable
	case http.StatusBadRequest:
		if strings.Contains(strings.ToLower(a.message), "crc32c") { // damaged on its way
			return store.ErrUnavailable
		}
		return store.ErrInvalid
	case http.StatusMethodNotAllowed, http.StatusLengthRequired, http.StatusRequestEntityTooLarge, http.StatusRequestURITooLong,
		http.StatusRequestHeaderFieldsTooLarge:
		return store.ErrInvalid
	}
	if write {
		return store.ErrUnknown
	}
	return store.ErrUnavailable
}

func (a *answer) throttle() bool {
	switch a.reason {
	case "rateLimitExceeded", "userRateLimitExceeded", "quotaExceeded", "dailyLimitExceeded":
		return true
	}
	return false
}

// advice says in words what to do about an answer to op.
func (a *answer) advice(op string) string {
	switch {
	case a.code == http.StatusUnauthorized:
		return "the credentials are missing, expired or revoked; needed is " + rights[op]
	case a.code == http.StatusTooManyRequests, a.code == http.StatusForbidden && a.throttle():
		return "too many requests; one object takes one write per second"
	case a.code == http.StatusForbidden && (a.reason == "retentionPolicyNotMet" || a.reason == "objectUnderActiveHold"):
		return "a retention policy or hold forbids changing the object; records need a bucket without"
	case a.code == http.StatusForbidden && a.reason == "accountDisabled":
		return "billing of the bucket's project is switched off"
	case a.code == http.StatusForbidden:
		return "needed is " + rights[op]
	case a.noBucket():
		return "the bucket does not exist: check the name"
	case a.code == http.StatusNotFound:
		return "not even the bucket was found: check its name and the endpoint"
	case a.code >= 300 && a.code <= 399:
		return "redirects are not followed: check the endpoint, or a proxy is in the way"
	}
	return ""
}

// rights names what each operation needs.
var rights = map[string]string{
	"get":       "storage.objects.get and storage.objects.list",
	"create":    "storage.objects.create",
	"replace":   "storage.objects.create and storage.objects.delete (to overwrite)",
	"delete":    "storage.objects.delete",
	"delete-if": "storage.objects.delete",
	"list":      "storage.objects.list",
	"inspect":   "storage.buckets.get",
}

// plain takes the URL out of an error of the HTTP client: what is left is why
// it failed.
func plain(err error) error {
	for {
		u, ok := err.(*url.Error)
		if !ok {
			return err
		}
		err = u.Err
	}
}

// clean makes text of a stranger fit for a message: one line, not long, and
// without what is secret.
func clean(text, hide string) string {
	if hide != "" {
		text = strings.ReplaceAll(text, hide, "[hidden]")
		if _, token, ok := strings.Cut(hide, " "); ok && token != "" {
			text = strings.ReplaceAll(text, token, "[hidden]")
		}
	}
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }), " ")
	const most = 300
	if r := []rune(text); len(r) > most {
		text = string(r[:most]) + "..."
	}
	return text
}
