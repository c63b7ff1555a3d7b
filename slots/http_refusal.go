package slots

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/tenure-project/tenure/guard"
	core "github.com/tenure-project/tenure/internal/core/slots"
	"github.com/tenure-project/tenure/store"
)

// The headers of routing (SL9). The package's text says what each is for.
const (
	// HeaderSlot is the slot that a refused request was for.
	HeaderSlot = "Tenure-Slot"
	// HeaderOwner is the name of the slot's owner.
	HeaderOwner = "Tenure-Owner"
	// HeaderOwnerAddress is where that owner can be reached.
	HeaderOwnerAddress = "Tenure-Owner-Address"
	// HeaderEpoch is that owner's epoch; in a request, the newest that the client knows.
	HeaderEpoch = "Tenure-Epoch"
)

const (
	maxRefusalBody = 16 << 10 // more than a refusal ever has
	maxRouteText   = 1024     // of a name or an address in a header
)

// Refusal is what a host answers that does not serve a request's slot: the body of a
// 421 or 503, as JSON, and in its headers (SL9). The request was not begun.
type Refusal struct {
	// Error says in words why; for people.
	Error string `json:"error"`
	// Slot is what was asked for.
	Slot uint16 `json:"slot"`
	// Range, Owner, Address and Epoch are what the host knows of the owner; of a 503
	// they are empty.
	Range   *Range `json:"range,omitempty"`
	Owner   string `json:"owner,omitempty"`
	Address string `json:"address,omitempty"`
	Epoch   uint64 `json:"epoch,omitempty"`
	// RetryAfterMS is after how many milliseconds to ask again; 0 of a 421, which is to
	// be asked elsewhere at once.
	RetryAfterMS int64 `json:"retry_after_ms"`
}

// write answers the request. A request for the head gets the headers alone.
func (f Refusal) write(w http.ResponseWriter, r *http.Request, status int) {
	h := w.Header()
	h.Set(HeaderSlot, strconv.Itoa(int(f.Slot)))
	if plainText(f.Owner) {
		h.Set(HeaderOwner, f.Owner)
	}
	if plainText(f.Address) {
		h.Set(HeaderOwnerAddress, f.Address)
	}
	if f.Epoch > 0 {
		h.Set(HeaderEpoch, strconv.FormatUint(f.Epoch, 10))
	}
	if f.RetryAfterMS > 0 {
		h.Set("Retry-After", strconv.FormatInt((f.RetryAfterMS+999)/1000, 10))
	}
	writeJSON(w, r, status, f)
}

// writeJSON answers with v, which nobody between may keep.
func writeJSON(w http.ResponseWriter, r *http.Request, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		body, status = []byte(`{"error":"the answer cannot be encoded"}`), http.StatusInternalServerError
	}
	body = append(body, '\n')
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Type", "application/json")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // the client may be gone
	}
}

// plainText reports whether s can be a header's value as it is: not empty, bounded, and
// visible ASCII with single spaces inside at most.
func plainText(s string) bool {
	if s == "" || len(s) > maxRouteText || s[0] == ' ' || s[len(s)-1] == ' ' {
		return false
	}
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// ReadRefusal reads the refusal from a 421 or 503 answer and closes its body; at most
// 16 KiB of that are read. What a header says counts before the body. An answer that
// names no slot, which is then no refusal of Serve's, or one that cannot be right is
// ErrInvalid. What it says is the host's word: see [TransportConfig] for what to make
// of an address.
func ReadRefusal(res *http.Response) (Refusal, error) {
	defer res.Body.Close()
	bad := func(err error) (Refusal, error) {
		return Refusal{}, store.Wrap(store.ErrInvalid, "", "read refusal", "", err)
	}
	if res.StatusCode != http.StatusMisdirectedRequest && res.StatusCode != http.StatusServiceUnavailable {
		return bad(fmt.Errorf("status %d is no refusal; those are 421 and 503", res.StatusCode))
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, maxRefusalBody+1))
	if err == nil && len(body) > maxRefusalBody {
		err = fmt.Errorf("the body has more than %d bytes", maxRefusalBody)
	}
	if err != nil {
		return bad(err)
	}
	f, err := decodeRefusal(body)
	if err != nil {
		return bad(err)
	}
	named, err := f.readHeaders(res.Header)
	if err != nil {
		return bad(err)
	}
	if len(body) == 0 && !named {
		return bad(fmt.Errorf("neither a body nor the header %s", HeaderSlot))
	}
	return f, f.check()
}

// decodeRefusal reads the JSON body, which may be empty: an answer to HEAD has none.
func decodeRefusal(body []byte) (Refusal, error) {
	var f struct {
		Refusal
		Slot *uint16 `json:"slot"`
	}
	if len(body) == 0 {
		return f.Refusal, nil
	}
	d := json.NewDecoder(bytes.NewReader(body))
	if err := d.Decode(&f); err != nil {
		return Refusal{}, err
	}
	if _, err := d.Token(); err != io.EOF {
		return Refusal{}, fmt.Errorf("the body goes on after its object")
	}
	if f.Slot == nil {
		return Refusal{}, fmt.Errorf("the body names no slot")
	}
	f.Refusal.Slot = *f.Slot
	return f.Refusal, nil
}

// readHeaders takes what the headers say, and reports whether they name the slot.
func (f *Refusal) readHeaders(h http.Header) (named bool, err error) {
	if v := h.Get(HeaderSlot); v != "" {
		n, err := strconv.ParseUint(v, 10, 16)
		if err != nil {
			return false, fmt.Errorf("%s: %w", HeaderSlot, err)
		}
		f.Slot, named = uint16(n), true
	}
	if v := h.Get(HeaderEpoch); v != "" {
		if f.Epoch, err = strconv.ParseUint(v, 10, 64); err != nil {
			return false, fmt.Errorf("%s: %w", HeaderEpoch, err)
		}
	}
	for name, field := range map[string]*string{HeaderOwner: &f.Owner, HeaderOwnerAddress: &f.Address} {
		v := h.Get(name)
		if v == "" {
			continue
		}
		if !plainText(v) {
			return false, fmt.Errorf("%s is %.40q; it is 1 to %d visible characters", name, v, maxRouteText)
		}
		*field = v
	}
	return named, nil
}

// check returns ErrInvalid if the refusal cannot be right.
func (f Refusal) check() error {
	bad := func(format string, args ...any) error {
		return store.Errorf(store.ErrInvalid, "", "read refusal", "", format, args...)
	}
	switch {
	case f.Slot > core.Last:
		return bad("there is no slot %d", f.Slot)
	case f.Epoch > guard.MaxToken:
		return bad("%d is no epoch", f.Epoch)
	case len(f.Owner) > maxRouteText || len(f.Address) > maxRouteText:
		return bad("the owner or its address has more than %d bytes", maxRouteText)
	case strings.ContainsFunc(f.Owner+f.Address, unicode.IsControl):
		return bad("the owner or its address holds a control character")
	case f.Range != nil && !f.Range.Contains(f.Slot):
		return bad("the range %v is not of the slot %d", *f.Range, f.Slot)
	case f.RetryAfterMS < 0 || f.RetryAfterMS > int64(time.Hour/time.Millisecond):
		return bad("it asks to come back after %d ms", f.RetryAfterMS)
	}
	return nil
}
