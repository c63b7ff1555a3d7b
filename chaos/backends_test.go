//go:build linux

package chaos

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/tenure-project/tenure/internal/testserver"
)

// place is a fresh store on some backend, as a person would name it.
type place struct {
	url string
	env []string      // credentials, as the backend's users give them
	ttl time.Duration // the shortest sensible one
}

// backend is a kind of store.
type backend struct {
	name string
	// open starts what is not running yet and makes a fresh place.
	open func(t *testing.T) place
}

const shortTTL = 2 * time.Second

var backends = []backend{
	{"file", func(t *testing.T) place {
		return place{url: "file://" + filepath.Join(t.TempDir(), "store"), ttl: shortTTL}
	}},
	{"numbered", func(t *testing.T) place {
		return place{url: "file://" + filepath.Join(t.TempDir(), "store") + "?register=numbered", ttl: shortTTL}
	}},
	{"sqlite", func(t *testing.T) place {
		return place{url: "sqlite://" + filepath.Join(t.TempDir(), "store.db"), ttl: shortTTL}
	}},
	{"postgres", openPostgres},
	{"etcd", openEtcd},
	{"nats", openNATS},
	{"s3", openS3},
	{"gcs", openGCS},
	{"azure", openAzure},
}

func openPostgres(t *testing.T) place {
	p, err := testserver.StartPostgreSQL()
	testserver.Need(t, "PostgreSQL", err)
	t.Cleanup(p.Remove)
	return place{url: p.DSN, ttl: shortTTL}
}

func openS3(t *testing.T) place {
	v, err := testserver.StartVersitygw(t.TempDir())
	testserver.Need(t, "versitygw", err)
	t.Cleanup(v.Stop)
	bucket := "chaos"
	mkdir(t, filepath.Join(v.Dir, bucket))
	return place{
		url: fmt.Sprintf("s3://%s/leases?endpoint=%s&region=us-east-1&path_style=1", bucket, v.Endpoint),
		env: []string{"AWS_ACCESS_KEY_ID=" + v.Access, "AWS_SECRET_ACCESS_KEY=" + v.Secret, "AWS_EC2_METADATA_DISABLED=true"},
		ttl: shortTTL,
	}
}
