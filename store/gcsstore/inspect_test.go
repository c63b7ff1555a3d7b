package gcsstore

import (
	"net/http"
	"strings"
	"testing"

	"github.com/tenure-project/tenure/store"
)

// Inspect names each setting that hurts leases, and nothing in a good bucket.
func TestInspect(t *testing.T) {
	t.Parallel()
	const good = `"name":"leases","storageClass":"STANDARD","iamConfiguration":{"publicAccessPrevention":"enforced","uniformBucketLevelAccess":{"enabled":true}}`
	for name, c := range map[string]struct{ about, says string }{
		"good":             {good, ""},
		"soft delete":      {good + `,"softDeletePolicy":{"retentionDurationSeconds":"604800"}`, "soft delete keeps and bills every overwritten record for 168h0m0s"},
		"soft delete off":  {good + `,"softDeletePolicy":{"retentionDurationSeconds":"0"}`, ""},
		"versioning":       {good + `,"versioning":{"enabled":true}`, "versioning"},
		"retention":        {good + `,"retentionPolicy":{"retentionPeriod":"3600","effectiveTime":"2026-01-01T00:00:00Z"}`, "no lease can be renewed"},
		"hold":             {good + `,"defaultEventBasedHold":true`, "hold"},
		"expiry":           {good + `,"lifecycle":{"rule":[{"action":{"type":"Delete"},"condition":{"age":30}}]}`, "highest token"},
		"expiry of ours":   {good + `,"lifecycle":{"rule":[{"action":{"type":"Delete"},"condition":{"age":30,"matchesPrefix":["x/","pre/fix/n"]}}]}`, "highest token"},
		"expiry around us": {good + `,"lifecycle":{"rule":[{"action":{"type":"Delete"},"condition":{"age":30,"matchesPrefix":["pre/"]}}]}`, "highest token"},
		"expiry elsewhere": {good + `,"lifecycle":{"rule":[{"action":{"type":"Delete"},"condition":{"age":30,"matchesPrefix":["x/","pre/fixed"]}}]}`, ""},
		"old versions":     {good + `,"lifecycle":{"rule":[{"action":{"type":"Delete"},"condition":{"daysSinceNoncurrentTime":1}}]}`, ""},
		"class by age":     {good + `,"lifecycle":{"rule":[{"action":{"type":"SetStorageClass","storageClass":"NEARLINE"},"condition":{"age":1}}]}`, "NEARLINE"},
		"class":            {strings.Replace(good, "STANDARD", "ARCHIVE", 1), "ARCHIVE"},
		"autoclass":        {good + `,"autoclass":{"enabled":true,"toggleTime":"2026-01-01T00:00:00Z"}`, "Autoclass"},
		"requester pays":   {good + `,"billing":{"requesterPays":true}`, "user_project"},
		"public":           {strings.Replace(good, "enforced", "inherited", 1), "public access"},
		"lists":            {strings.Replace(good, "true", "false", 1), "uniform"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cl := newCloud(t, nil)
			cl.about[testBucket] = "{" + c.about + "}"
			warnings, err := cl.open(t, "pre/fix").Inspect(t.Context())
			is(t, err, nil)
			if want := min(1, len(c.says)); len(warnings) != want || want == 1 && !strings.Contains(warnings[0], c.says) {
				t.Errorf("the warnings are %q, want one that says %q, or none", warnings, c.says)
			}
		})
	}
}

// Without rights, or without sense, Inspect says so.
func TestInspectFails(t *testing.T) {
	t.Parallel()
	cl := newCloud(t, func(w http.ResponseWriter, _ *http.Request) bool {
		refuse(w, 403, "forbidden", "x does not have storage.buckets.get access")
		return true
	})
	s := cl.open(t, "")
	_, err := s.Inspect(t.Context())
	is(t, err, store.ErrDenied)
	if err == nil || !strings.Contains(err.Error(), "storage.buckets.get") {
		t.Errorf("the message does not name the right: %v", err)
	}
	cl.script = nil // an empty answer describes no bucket
	_, err = s.Inspect(t.Context())
	is(t, err, store.ErrUnavailable)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	_, err = s.Inspect(t.Context())
	is(t, err, store.ErrUnavailable)
}
