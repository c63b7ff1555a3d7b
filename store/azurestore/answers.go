package azurestore

import (
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"

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

// answer is what the server said, as far as it decides something.
type answer struct {
	status int
	code   string // Azure's word for it; "" if the answer is not Azure's
	id     string // names the request to Azure's support
	detail string // why a request was not authenticated
}

// String says it for a person. It quotes nothing but codes and ids: the body of
// a refusal may hold a signature.
func (a answer) String() string {
	s := fmt.Sprintf("HTTP %d", a.status)
	if a.code != "" {
		s += " " + a.code
	}
	if a.id != "" {
		s += " (request " + a.id + ")"
	}
	return s
}

// absent reports that the blob is not there. A missing container is another
// matter, and so is a 404 of somebody else.
func (a answer) absent() bool {
	return a.status == http.StatusNotFound && a.code == "BlobNotFound"
}

// conditionNotMet reports that the key was not in the state that the write was
// bound to.
func (a answer) conditionNotMet() bool {
	if a.status != http.StatusPreconditionFailed {
		return false
	}
	return a.code == "ConditionNotMet" || a.code == "TargetConditionNotMet" || a.code == ""
}

var (
	plainCode = regexp.MustCompile(`^[A-Za-z0-9]{1,80}$`)
	plainID   = regexp.MustCompile(`^[0-9A-Za-z-]{1,80}$`)
)

// answer reads what the server said.
func (c *call) answer(x *exchange, err error) answer {
	a := answer{status: x.resp.StatusCode, code: x.resp.Header.Get("X-Ms-Error-Code"), id: x.resp.Header.Get("X-Ms-Request-Id")}
	if e := (*azcore.ResponseError)(nil); a.code == "" && errors.As(err, &e) {
		a.code = e.ErrorCode
	}
	if a.status < 400 || !plainCode.MatchString(a.code) { // a code in what claims to be no error decides nothing
		a.code = ""
	}
	if !plainID.MatchString(a.id) {
		a.id = ""
	}
	if a.status == http.StatusUnauthorized || a.status == http.StatusForbidden {
		a.detail = authDetail(x.resp)
		if c.s.auth != nil {
			c.s.auth.refused(x.resp)
		}
	}
	return a
}

// authDetail is why Azure did not accept the credentials, in its own words.
func authDetail(resp *http.Response) string {
	body, err := runtime.Payload(resp) // the SDK keeps the body of an error
	if err != nil {
		return ""
	}
	var e struct{ AuthenticationErrorDetail string }
	if xml.Unmarshal(body, &e) != nil {
		return ""
	}
	return e.AuthenticationErrorDetail
}

// refusal is the error for an answer that is neither a success nor a condition
// that was not met. A write that it may hide is unknown; anything that Azure
// refused before it did something is not.
func (c *call) refusal(a answer, write bool) error {
	why, kind := c.meaning(a)
	if kind == nil {
		kind = store.ErrUnavailable
		if write {
			kind = store.ErrUnknown
		}
	}
	if why == "" {
		return c.errorf(kind, "%s", a)
	}
	return c.errorf(kind, "%s: %s", a, why)
}

// meaning says what to do about an answer, and its kind. A nil kind says that a
// write may have happened.
func (c *call) meaning(a answer) (why string, kind error) {
	if m, ok := meanings[a.code]; ok {
		if m.kind == store.ErrDenied && m.why == "" {
			return c.missing(a), m.kind
		}
		return m.why, m.kind
	}
	switch a.status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return c.missing(a), store.ErrDenied
	case http.StatusNotFound:
		return "no blob service with this container answers here; check account and endpoint", store.ErrUnavailable
	case http.StatusTooManyRequests:
		return "the account is being throttled", store.ErrUnavailable
	case http.StatusBadRequest, http.StatusConflict, http.StatusPreconditionFailed, http.StatusLengthRequired,
		http.StatusRequestEntityTooLarge, http.StatusMethodNotAllowed, http.StatusRequestedRangeNotSatisfiable:
		return "", store.ErrUnavailable // refused before anything was done
	}
	return "", nil
}

// meanings are the codes that say more than their status. An empty text with
// ErrDenied stands for the right that is missing.
var meanings = map[string]struct {
	kind error
	why  string
}{
	"ContainerNotFound":     {store.ErrInvalid, "the container does not exist; make it first, Tenure never does"},
	"ContainerBeingDeleted": {store.ErrUnavailable, "the container is being deleted, and every record with it"},
	"ContainerDisabled":     {store.ErrUnavailable, "an administrator disabled the container"},
	"ResourceNotFound":      {store.ErrUnavailable, "there is no such container, or it does not show itself to a caller without credentials"},
	"ServerBusy":            {store.ErrUnavailable, "the account or the blob is being throttled"},
	"BlobArchived":          {store.ErrUnavailable, "the blob is in the archive tier; take lifecycle rules off the container and rehydrate it"},
	"BlobBeingRehydrated":   {store.ErrUnavailable, "the blob is coming back from the archive tier"},
	"InvalidBlobType":       {store.ErrUnavailable, "a blob of another type has this name"},

	"BlobImmutableDueToPolicy": {store.ErrDenied, "an immutability policy or a legal hold forbids to change the blob; use a container without one"},
	"PublicAccessNotPermitted": {store.ErrDenied, "the request carried no credentials"},
	"AccountIsDisabled":        {store.ErrDenied, "the storage account is disabled"},

	"LeaseIdMissing":                   {store.ErrDenied, leased},
	"LeaseIdMismatchWithBlobOperation": {store.ErrDenied, leased},
	"LeaseLost":                        {store.ErrDenied, leased},

	"AuthorizationPermissionMismatch":   {store.ErrDenied, ""},
	"AuthorizationResourceTypeMismatch": {store.ErrDenied, ""},
	"InsufficientAccountPermissions":    {store.ErrDenied, ""},
	"UnauthorizedBlobOverwrite":         {store.ErrDenied, ""},
	"InvalidAuthenticationInfo":         {store.ErrDenied, ""},
	"NoAuthenticationInformation":       {store.ErrDenied, ""},
	"AuthenticationFailed":              {store.ErrDenied, ""},
}

const leased = "somebody holds an Azure lease on this blob (a backup tool, another lock library); find out who, then end it with " +
	"`az storage blob lease break`"

// rights are the data-plane action and the SAS permission that each operation
// needs.
var rights = map[string]string{
	opGet:      "containers/blobs/read (SAS: r)",
	opCreate:   "containers/blobs/write or containers/blobs/add/action (SAS: c)",
	opReplace:  "containers/blobs/write (SAS: w)",
	opDelete:   "containers/blobs/delete (SAS: d)",
	opDeleteIf: "containers/blobs/delete (SAS: d)",
	opList:     "containers/blobs/read, on the container (SAS: l)",

	needAccount:   "getInfo/action",
	needContainer: "containers/read",
	needService:   "read",
}

// What Inspect needs beside the rights of the operations.
const (
	needAccount   = "account information"
	needContainer = "container properties"
	needService   = "service properties"
)

// missing says what a refused request lacks.
func (c *call) missing(a answer) string {
	need := "it needs the action Microsoft.Storage/storageAccounts/blobServices/" + rights[c.need]
	if c.s.auth != nil {
		if why := c.s.auth.expired(); why != "" {
			return why
		}
	}
	detail := strings.ToLower(a.detail)
	switch a.code {
	case "AuthenticationFailed":
		switch {
		case strings.Contains(detail, "not valid in the specified time frame"), strings.Contains(detail, "signed expiry"):
			return "the SAS token has expired or is not valid yet; get a new one, and check the clock of this machine"
		case strings.Contains(detail, "date header"):
			return "the clock of this machine is more than 15 minutes off; set it"
		case strings.Contains(detail, "lifetime validation failed"), strings.Contains(detail, "expired"):
			return "the access token has expired, and no newer one could be had; check the clock of this machine"
		}
		return "Azure does not accept the credentials: a wrong or rotated key, an expired token, or a clock that is more than 15 minutes off; " + need
	case "InvalidAuthenticationInfo", "NoAuthenticationInformation":
		return "Azure does not accept the credentials, or found none; " + need
	case "AuthorizationFailure":
		return "the account's network rules or its policy forbid it from here; otherwise " + need
	case "AuthorizationSourceIPMismatch":
		return "the SAS token is not for the address of this machine"
	case "AuthorizationProtocolMismatch":
		return "the SAS token or the account allows https only"
	case "KeyBasedAuthenticationNotPermitted":
		return "the account forbids keys and SAS tokens; sign in with Microsoft Entra ID instead"
	}
	return need
}
