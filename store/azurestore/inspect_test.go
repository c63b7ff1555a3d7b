package azurestore

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
)

// Inspect finds what makes leases costly or impossible, as far as it may look.
func TestInspect(t *testing.T) {
	t.Parallel()
	srv := newScript(t, map[string]reply{
		"HEAD": {status: 200, header: map[string]string{"Etag": `"0x1"`, "X-Ms-Version-Id": "2026-11-29T10:00:00.0000000Z"}},
		"GET": {do: func(w http.ResponseWriter, r *http.Request) {
			q := r.URL.Query()
			switch q.Get("restype") + "/" + q.Get("comp") {
			case "account/properties":
				reply{status: 200, header: map[string]string{"X-Ms-Is-Hns-Enabled": "true", "X-Ms-Sku-Name": "Standard_RAGRS", "X-Ms-Account-Kind": "StorageV2"}}.write(w)
			case "service/properties":
				reply{status: 200, body: "<StorageServiceProperties><DeleteRetentionPolicy><Enabled>true</Enabled><Days>7</Days></DeleteRetentionPolicy></StorageServiceProperties>"}.write(w)
			case "container/list":
				page("", "p/ns/lease/a").write(w)
			case "container/":
				reply{status: 200, header: map[string]string{"X-Ms-Has-Immutability-Policy": "true", "X-Ms-Blob-Public-Access": "blob", "X-Ms-Immutable-Storage-With-Versioning-Enabled": "true"}}.write(w)
			default:
				reply{status: 400, code: "InvalidInput"}.write(w)
			}
		}},
	})
	got, err := at(t, srv.URL).Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Join(got, "\n")
	for _, want := range []string{"hierarchical", "RAGRS", "immutability policy", "version-level", "public (blob)", "7 days", "old versions"} {
		if !strings.Contains(all, want) {
			t.Errorf("Inspect does not mention %q:\n%s", want, all)
		}
	}
	if len(got) != 7 {
		t.Errorf("Inspect says %d sentences:\n%s", len(got), all)
	}
}

// What Inspect may not see it says; the end of a context it returns.
func TestInspectWithoutRights(t *testing.T) {
	t.Parallel()
	denied := reply{status: 403, code: "AuthorizationPermissionMismatch"}
	s := at(t, newScript(t, map[string]reply{"GET": denied, "HEAD": denied}).URL)
	got, err := s.Inspect(t.Context())
	all := strings.Join(got, "\n")
	if err != nil || len(got) != 4 || strings.Count(all, "not seen") != 4 || !strings.Contains(all, "blobServices/getInfo/action") {
		t.Errorf("%v:\n%s", err, all)
	}
	noSecret(t, all)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Inspect(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Inspect with an ended context: %v", err)
	}
}

// The emulator has nothing to warn of.
func TestInspectEmulator(t *testing.T) {
	t.Parallel()
	s := openAt(t, place(t))
	if _, err := s.Create(t.Context(), testKey, nil); err != nil {
		t.Fatal(err)
	}
	got, err := s.Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range got {
		if strings.HasPrefix(g, "not seen") {
			t.Errorf("Inspect of the emulator: %s", g)
		}
	}
	t.Log(strings.Join(got, "\n"))
}
