package stores_test

import (
	"os/exec"
	"strings"
	"testing"
)

// clients are the import paths by which each provider's client is known.
var clients = map[string]string{
	"s3store":          "github.com/aws/aws-sdk-go-v2",
	"gcsstore":         "cloud.google.com/go",
	"azurestore":       "github.com/Azure/azure-sdk-for-go",
	"etcdstore":        "go.etcd.io/etcd",
	"natsstore":        "github.com/nats-io/nats.go",
	"sqlstore":         "modernc.org/sqlite",
	"sqlstore/pgstore": "github.com/jackc/pgx",
}

// A program links the client of the store that it uses and no other: one that
// keeps leases in files links none at all.
//
// SPEC UI4
func TestNoForeignClients(t *testing.T) {
	t.Parallel()
	packages := map[string]string{"filestore": "", "memstore": "", "numbered": ""}
	for pkg, own := range clients {
		packages[pkg] = own
	}
	for pkg, own := range packages {
		t.Run(pkg, func(t *testing.T) {
			t.Parallel()
			deps := strings.Fields(list(t, "github.com/tenure-project/tenure/store/"+pkg))
			found := own == ""
			for _, dep := range deps {
				for of, client := range clients {
					if !strings.HasPrefix(dep, client) {
						continue
					}
					if of == pkg {
						found = true
					} else {
						t.Errorf("it links %s, the client of %s", dep, of)
					}
				}
				if own == "" && !strings.HasPrefix(dep, "github.com/tenure-project/tenure") && !strings.HasPrefix(dep, "golang.org/x/sys/") {
					t.Errorf("it links %s", dep)
				}
			}
			if !found {
				t.Errorf("it does not link its own client %s, so this test proves nothing", own)
			}
		})
	}
}

// list is what pkg is built of, but for the standard library.
func list(t *testing.T, pkg string) string {
	t.Helper()
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", pkg).Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	return string(out)
}
