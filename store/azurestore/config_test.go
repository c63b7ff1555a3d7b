package azurestore

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenure-project/tenure/store"
)

// envOf is an environment for configOf.
func envOf(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

const connection = "DefaultEndpointsProtocol=https;AccountName=acct1;AccountKey=" + secretKey + ";EndpointSuffix=core.usgovcloudapi.net"

// Good URLs lead to the right account, with the right credentials.
//
// SPEC UI4
func TestURLs(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		url      string
		env      []string
		identity string
		with     string
	}{
		{"azblob://leases?account=acct1", nil, "azblob://acct1.blob.core.windows.net/leases/", "token"},
		{"azblob://leases/", []string{envAccount, "acct1", envKey, secretKey}, "azblob://acct1.blob.core.windows.net/leases/", "key"},
		{"azblob://leases/prod/eu?account=acct1", []string{envAccount, "other1", envSAS, testSAS}, "azblob://acct1.blob.core.windows.net/leases/prod/eu/", "sas"},
		{"azblob://leases", []string{envConnection, connection}, "azblob://acct1.blob.core.usgovcloudapi.net/leases/", "key"},
		{"azblob://leases", []string{envConnection, connection, envKey, "x"}, "azblob://acct1.blob.core.usgovcloudapi.net/leases/", "key"},
		{"azblob://leases?endpoint=https://ACCT2.blob.storage.azure.net:443/", nil, "azblob://acct2.blob.storage.azure.net/leases/", "token"},
		{"azblob://leases?endpoint=acct2.z07.blob.storage.azure.net", nil, "azblob://acct2.z07.blob.storage.azure.net/leases/", "token"},
		{"azblob://leases?account=acct1&endpoint=blobs.example.org", nil, "azblob://blobs.example.org/leases/", "token"},
		{"azblob://leases?account=acct1&endpoint=http://127.0.0.1:10000/acct1", []string{envKey, secretKey}, "azblob://127.0.0.1:10000/acct1/leases/", "key"},
		{"azblob://leases", []string{envConnection, "BlobEndpoint=https://acct3.blob.core.windows.net/;SharedAccessSignature=" + testSAS[1:]}, "azblob://acct3.blob.core.windows.net/leases/", "sas"},
	} {
		u, err := url.Parse(row.url)
		if err != nil {
			t.Fatal(err)
		}
		c, err := configOf(u, envOf(row.env...))
		if err != nil {
			t.Errorf("%s: %v", row.url, err)
			continue
		}
		with := "token"
		if c.key != "" {
			with = "key"
		} else if c.sas != "" {
			with = "sas"
		}
		s := openAt(t, c)
		if got := s.Info().Identity; got != row.identity || with != row.with {
			t.Errorf("%s opens %s with a %s, want %s with a %s", row.url, got, with, row.identity, row.with)
		}
		noSecret(t, s.Info().Identity)
	}
}

// Bad input is refused before anything is sent, and no answer shows a secret.
//
// SPEC UI4 ST8
func TestBadURLs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "empty"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		url  string
		env  []string
		says string
	}{
		{"azblob://leases", nil, envAccount},
		{"azblob://leases", []string{envKey, secretKey}, envAccount},
		{"azblob://Leases?account=acct1", nil, "container name"},
		{"azblob://a--b?account=acct1", nil, "container name"},
		{"azblob://ab?account=acct1", nil, "container name"},
		{"azblob:leases?account=acct1", nil, "azblob://"},
		{"azblob://leases:99?account=acct1", nil, "port"},
		{"azblob://leases#x?account=acct1", nil, "fragment"},
		{"azblob://acct1:hunter2@leases", nil, "user information"},
		{"azblob://leases?account=acct1&acount=x", nil, "acount"},
		{"azblob://leases?account=acct1&account=acct2", nil, "2 times"},
		{"azblob://leases?account=a_b", nil, "no storage account"},
		{"azblob://leases?account=acct1-secondary", nil, "no storage account"},
		{"azblob://leases?account=acct1&endpoint=https://acct1-secondary.blob.core.windows.net", nil, "secondary"},
		{"azblob://leases?account=acct1&endpoint=http://127.0.0.1:10000/acct1-secondary", []string{envKey, secretKey}, "secondary"},
		{"azblob://leases?account=acct1&endpoint=https://acct1.dfs.core.windows.net", nil, "Data Lake"},
		{"azblob://leases?endpoint=https://acct1-secondary.z07.blob.storage.azure.net", nil, "no storage account"},
		{"azblob://leases?account=acct1&endpoint=https://acct1.z07.dfs.storage.azure.net", nil, "Data Lake"},
		{"azblob://leases?account=acct1&endpoint=https://u:hunter2@acct1.blob.core.windows.net", nil, "user information"},
		{"azblob://leases?account=acct1&endpoint=https://acct1.blob.core.windows.net%3Fsig%3D" + secretSig, nil, "query"},
		{"azblob://leases?account=acct1&endpoint=ftp://acct1", nil, "ftp"},
		{"azblob://leases?account=acct1&endpoint=https://", nil, "host"},
		{"azblob://leases?account=acct1&endpoint=https://a%20b%25zzhunter2", nil, "no URL"},
		{"azblob://leases?account=acct1&endpoint=http://blobs.example.org", nil, "not encrypted"},
		{"azblob://leases/a/../b?account=acct1", nil, "prefix"},
		{"azblob://leases/a//b?account=acct1", nil, "prefix"},
		{"azblob://leases/a%20b?account=acct1", nil, "prefix"},
		{"azblob://leases/" + strings.Repeat("x", 201) + "?account=acct1", nil, "201 bytes"},
		{"azblob://leases?account=acct1", []string{envKey, "hunter2!"}, "base64"},
		{"azblob://leases?account=acct1", []string{envSAS, "hunter2"}, "no SAS token"},
		{"azblob://leases?account=acct1", []string{envConnection, "hunter2"}, "no connection string"},
		{"azblob://leases?account=acct1", []string{envConnection, "AccountName=acct1;Secret=hunter2"}, "neither"},
		{"azblob://leases?account=acct2", []string{envConnection, connection}, "which one"},
		{"azblob://leases", []string{envConnection, "UseDevelopmentStorage=true"}, "emulator"},
		{"azblob://leases?account=acct1&sas-file=" + dir + "/none", nil, "sas-file"},
		{"azblob://leases?account=acct1&sas-file=" + dir + "/empty", nil, "no SAS token"},
	} {
		u, err := url.Parse(row.url)
		if err != nil {
			t.Fatal(err)
		}
		c, err := configOf(u, envOf(row.env...))
		if err == nil {
			var s *Store
			if s, err = c.open(); err == nil {
				_ = s.Close()
			}
		}
		if store.KindOf(err) != store.ErrInvalid || !strings.Contains(err.Error(), row.says) {
			t.Errorf("%s gave %v, want ErrInvalid that says %q", row.url, err, row.says)
			continue
		}
		noSecret(t, err.Error())
	}
}

// The driver opens a store by its URL, without a typed nil on failure.
func TestDriver(t *testing.T) {
	t.Parallel()
	d := Driver()
	u, err := url.Parse("azblob://x?account=acct1")
	if err != nil {
		t.Fatal(err)
	}
	if s, err := d.Open(t.Context(), u); s != nil || store.KindOf(err) != store.ErrInvalid {
		t.Errorf("%v, %v", s, err)
	}
	file := filepath.Join(t.TempDir(), "sas")
	if err := os.WriteFile(file, []byte(testSAS+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	u.Host, u.RawQuery = "leases", url.Values{"account": {"acct1"}, "sas-file": {file}}.Encode()
	s, err := d.Open(t.Context(), u)
	if err != nil {
		t.Fatal(err)
	}
	if d.Scheme != s.Info().Scheme {
		t.Errorf("the driver's scheme is %q, the store's %q", d.Scheme, s.Info().Scheme)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
