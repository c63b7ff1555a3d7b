package gcsstore
import (
 _ "cloud.google.com/go/storage"
 _ "github.com/fsouza/fake-gcs-server/fakestorage"
 _ "google.golang.org/api/transport/http"
 _ "go.uber.org/goleak"
)
