package azurestore

import (
	"context"
	"net"
	"net/url"
	"os"
	"regexp"
	"strings"

	"github.com/tenure-project/tenure/store"
)

// The environment variables of Azure's own tools.
const (
	envAccount    = "AZURE_STORAGE_ACCOUNT"
	envKey        = "AZURE_STORAGE_KEY"
	envSAS        = "AZURE_STORAGE_SAS_TOKEN"
	envConnection = "AZURE_STORAGE_CONNECTION_STRING"
)

// Driver opens "azblob://container/prefix?account=NAME&endpoint=URL" (UI4).
//
// account defaults to AZURE_STORAGE_ACCOUNT, endpoint to
// https://NAME.blob.core.windows.net. The credentials are the first of these
// that is set: the file named by the parameter sas-file, which is read again
// when the token in it runs out; AZURE_STORAGE_CONNECTION_STRING;
// AZURE_STORAGE_KEY; AZURE_STORAGE_SAS_TOKEN. If none is, Microsoft Entra ID is
// asked through DefaultAzureCredential: environment, workload identity, managed
// identity, then the command-line tools. Opening does no I/O but to read
// sas-file.
func Driver() store.Driver {
	return store.Driver{Scheme: scheme, Open: func(_ context.Context, u *url.URL) (store.Store, error) {
		c, err := configOf(u, os.Getenv)
		if err != nil {
			return nil, err
		}
		s, err := c.open()
		if err != nil {
			return nil, err // not a typed nil in the interface
		}
		return s, nil
	}}
}

// config is everything that Open needs to know.
type config struct {
	container string
	prefix    string
	account   string
	endpoint  *url.URL // of the account, without a trailing slash
	key       string
	sas       string
	sasFile   string
}

func invalid(format string, args ...any) error {
	return store.Errorf(store.ErrInvalid, scheme, opOpen, "", format, args...)
}

var containerName = regexp.MustCompile(`^[a-z0-9](-?[a-z0-9])*$`)

// configOf reads a URL and the environment. Its errors quote nothing that may
// hold a secret.
func configOf(u *url.URL, env func(string) string) (*config, error) {
	if err := store.CheckParams(u, "account", "endpoint", "sas-file"); err != nil {
		return nil, err
	}
	if u.User != nil {
		return nil, invalid("the store URL holds user information; credentials belong into the environment (%s, %s, %s)", envKey, envSAS, envConnection)
	}
	if u.Opaque != "" || u.Fragment != "" || u.Port() != "" {
		return nil, invalid("the store URL has a port, a fragment or no host; write azblob://container/prefix?account=NAME")
	}
	if n := len(u.Host); n < 3 || n > 63 || !containerName.MatchString(u.Host) {
		return nil, invalid("%q is no container name: 3 to 63 of a-z, 0-9 and single hyphens between them", u.Host)
	}
	prefix, err := checkPrefix(u.Path)
	if err != nil {
		return nil, err
	}
	q := u.Query()
	c := &config{container: u.Host, prefix: prefix, account: q.Get("account"), sasFile: q.Get("sas-file")}
	if e := q.Get("endpoint"); e != "" {
		if c.endpoint, err = endpointOf(e); err != nil {
			return nil, err
		}
	}
	if err := c.credentials(env); err != nil {
		return nil, err
	}
	return c, c.complete(env)
}

// credentials takes the first credentials that the environment holds.
func (c *config) credentials(env func(string) string) error {
	switch {
	case c.sasFile != "":
		return nil
	case env(envConnection) != "":
		return c.connection(env(envConnection))
	}
	if c.key = env(envKey); c.key == "" {
		c.sas = env(envSAS)
	}
	return nil
}

// connection reads a connection string as the portal shows it.
func (c *config) connection(text string) error {
	fields := map[string]string{}
	for part := range strings.SplitSeq(strings.Trim(strings.TrimSpace(text), ";"), ";") {
		name, value, ok := strings.Cut(part, "=")
		if !ok {
			return invalid("%s is no connection string: a part of it has no '='", envConnection)
		}
		fields[name] = value
	}
	if strings.EqualFold(fields["UseDevelopmentStorage"], "true") {
		return invalid("%s asks for development storage; give account, key and endpoint of the emulator instead", envConnection)
	}
	if a := fields["AccountName"]; a != "" {
		if c.account != "" && c.account != a {
			return invalid("the store URL names the account %q, but %s the account %q; which one is meant?", c.account, envConnection, a)
		}
		c.account = a
	}
	c.key, c.sas = fields["AccountKey"], fields["SharedAccessSignature"]
	if c.key == "" && c.sas == "" {
		return invalid("%s holds neither AccountKey nor SharedAccessSignature", envConnection)
	}
	if c.endpoint != nil {
		return nil
	}
	var err error
	switch e, suffix := fields["BlobEndpoint"], fields["EndpointSuffix"]; {
	case e != "":
		c.endpoint, err = endpointOf(e)
	case suffix != "" && c.account != "":
		protocol := fields["DefaultEndpointsProtocol"]
		if protocol == "" {
			protocol = "https"
		}
		c.endpoint, err = endpointOf(protocol + "://" + c.account + ".blob." + suffix)
	}
	return err
}

var (
	accountName = regexp.MustCompile(`^[a-z0-9]{3,24}$`)
	// azureHost is an account's host at Azure itself, with a DNS zone or without.
	azureHost = regexp.MustCompile(`^([a-z0-9-]+)\.(?:z[0-9]+\.)?blob\.`)
)

// complete fills in what the URL left out and checks the whole.
func (c *config) complete(env func(string) string) error {
	if c.account == "" {
		c.account = env(envAccount)
	}
	if m := azureHost.FindStringSubmatch(hostOf(c.endpoint)); c.account == "" && m != nil {
		c.account = m[1]
	}
	switch {
	case c.account == "" && (c.endpoint == nil || c.key != ""):
		return invalid("no storage account: write ?account=NAME or set %s", envAccount)
	case c.account != "" && !accountName.MatchString(c.account):
		return invalid("%q is no storage account: 3 to 24 of a-z and 0-9", c.account)
	case c.endpoint == nil:
		c.endpoint = &url.URL{Scheme: "https", Host: c.account + ".blob.core.windows.net"}
	}
	if c.endpoint.Scheme == "http" && c.key == "" && c.sas == "" && c.sasFile == "" {
		return invalid("the endpoint is not encrypted, and an access token would cross the network in the clear; use https")
	}
	return checkHost(c.endpoint)
}

func hostOf(u *url.URL) string {
	if u == nil {
		return ""
	}
	return strings.ToLower(u.Hostname())
}

// endpointOf reads an endpoint; without a scheme it is https.
func endpointOf(text string) (*url.URL, error) {
	if !strings.Contains(text, "://") {
		text = "https://" + text
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, invalid("the endpoint is no URL") // the error would quote it
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, invalid("the endpoint of %s has user information, a query or a fragment; credentials belong into the environment", u.Hostname())
	case u.Scheme != "https" && u.Scheme != "http":
		return nil, invalid("the endpoint's scheme is %q; use https", u.Scheme)
	case u.Hostname() == "":
		return nil, invalid("the endpoint names no host")
	}
	u.Path = strings.TrimRight(u.Path, "/")
	u.RawPath = ""
	return u, nil
}

// checkHost refuses endpoints that are never an authority for a lease.
func checkHost(u *url.URL) error {
	host := strings.ToLower(u.Hostname())
	if net.ParseIP(host) != nil {
		first, _, _ := strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
		host = first // the account is the path's first element
	}
	first, rest, _ := strings.Cut(host, ".")
	switch {
	case strings.HasSuffix(first, "-secondary"):
		return invalid("%s is the secondary of an account: it lags behind the primary and cannot be a lease's authority", first)
	case strings.Contains("."+rest, ".dfs."):
		return invalid("%s is a Data Lake endpoint; use the blob endpoint of an account without a hierarchical namespace", host)
	}
	return nil
}

// checkPrefix returns path as what blob names start with: "" or "a/b/".
func checkPrefix(path string) (string, error) {
	path = strings.Trim(path, "/")
	if path == "" {
		return "", nil
	}
	if len(path) > 200 {
		return "", invalid("the prefix has %d bytes; at most 200 are allowed", len(path))
	}
	for element := range strings.SplitSeq(path, "/") {
		if element == "" || strings.HasSuffix(element, ".") || strings.Trim(element, prefixBytes) != "" {
			return "", invalid("the prefix %q: between slashes it takes letters, digits and - _ = . but no dot at an end", path)
		}
	}
	return path + "/", nil
}

const prefixBytes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=."

// parseSAS reads a SAS token, with or without its question mark.
func parseSAS(text, from string) (url.Values, error) {
	q, err := url.ParseQuery(strings.TrimPrefix(strings.TrimSpace(text), "?"))
	if err != nil || q.Get("sig") == "" || q.Get("sv") == "" {
		return nil, invalid("%s holds no SAS token: it must have the fields sv and sig", from)
	}
	return q, nil
}
