package slots

import (
	"net/url"
	"strings"

	"github.com/tenure-project/tenure/store"
)

// routeDest is where a request is sent.
type routeDest struct {
	scheme, host string
	epoch        uint64 // of the route; 0 is unknown
	stranger     bool   // only an answer names it, not the table
}

// address is what two targets have in common that are one place.
func (t routeDest) address() string { return t.scheme + "://" + t.host }

// routeTarget is where a route leads.
func routeTarget(r Route, scheme string) (routeDest, error) {
	if r.Addr == "" {
		return routeDest{}, store.Errorf(store.ErrInvalid, "", "send", r.Range.String(), "its owner %s announced no address", r.Owner)
	}
	t, err := parseAddress(r.Addr, scheme)
	t.epoch = r.Epoch
	return t, err
}

// parseAddress reads "host", "host:port" or "scheme://host:port" with nothing behind
// it. Without a scheme the request's holds. Other forms are ErrInvalid: an address is a
// place, and must not choose a path, a user or a weaker scheme.
func parseAddress(text, scheme string) (routeDest, error) {
	bad := func(why string) (routeDest, error) {
		return routeDest{}, store.Errorf(store.ErrInvalid, "", "read address", "", "%.80q %s", text, why)
	}
	if !plainText(text) {
		return bad("is not 1 to 1024 visible characters")
	}
	full := text
	if !strings.Contains(text, "://") {
		full = "//" + text
	}
	u, err := url.Parse(full)
	switch {
	case err != nil:
		return bad("is no address: " + err.Error())
	case u.Hostname() == "" || u.Opaque != "":
		return bad("names no host")
	case u.Host[0] != '[' && strings.Count(u.Host, ":") > 1:
		return bad("has more than one colon; an IPv6 address stands in brackets")
	case u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || u.Path != "" && u.Path != "/":
		return bad("has more than scheme, host and port")
	case u.Scheme == "":
		u.Scheme = strings.ToLower(scheme)
	case scheme == "https" && u.Scheme != "https":
		return bad("is weaker than the https that was asked for")
	}
	if u.Scheme != "http" && u.Scheme != "https" {
		return bad("has the scheme " + u.Scheme + "; requests go by http or https")
	}
	return routeDest{scheme: u.Scheme, host: strings.ToLower(u.Host)}, nil
}
