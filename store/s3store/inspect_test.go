package s3store

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

// settings answers questions for a bucket's configuration by sub-resource.
func settings(answers map[string]reply) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for what, a := range answers {
			if r.URL.Query().Has(what) {
				a.send(w)
				return
			}
		}
		answerError(w, 501, "NotImplemented")
	})
}

func doc(root, inner string) reply {
	return reply{status: 200, body: xmlHead + "<" + root + ">" + inner + "</" + root + ">"}
}

// SPEC ST10 ST16
func TestInspect(t *testing.T) {
	t.Parallel()
	plain := map[string]reply{
		"versioning":  doc("VersioningConfiguration", ""),
		"lifecycle":   {status: 404, code: "NoSuchLifecycleConfiguration"},
		"object-lock": {status: 404, code: "ObjectLockConfigurationNotFoundError"},
		"replication": {status: 404, code: "ReplicationConfigurationNotFoundError"},
	}
	with := func(what string, a reply, more ...any) map[string]reply {
		out := map[string]reply{}
		for k, v := range plain {
			out[k] = v
		}
		out[what] = a
		for i := 0; i < len(more); i += 2 {
			out[more[i].(string)] = more[i+1].(reply)
		}
		return out
	}
	on := doc("VersioningConfiguration", "<Status>Enabled</Status>")
	rule := func(prefix, inner string) reply {
		return doc("LifecycleConfiguration", "<Rule><ID>r</ID><Status>Enabled</Status><Filter><Prefix>"+prefix+"</Prefix></Filter>"+inner+"</Rule>")
	}
	ending := "<NoncurrentVersionExpiration><NoncurrentDays>1</NoncurrentDays></NoncurrentVersionExpiration>"
	for _, row := range []struct {
		name    string
		answers map[string]reply
		want    []string // one for each sentence, in order
	}{
		{"nothing of note", plain, nil},
		{"versioning", with("versioning", on), []string{"versioning is on", "NoncurrentVersionExpiration"}},
		{"versioning with a rule", with("versioning", on, "lifecycle", rule("p/", ending)), []string{"versioning is on"}},
		{"versioning with two rules", with("versioning", on, "lifecycle", doc("LifecycleConfiguration",
			"<Rule><ID>a</ID><Status>Enabled</Status><Prefix>p/</Prefix>"+ending+"</Rule><Rule><ID>b</ID><Status>Enabled</Status><Prefix>p/</Prefix></Rule>")),
			[]string{"versioning is on"}},
		{"versioning with a rule that is off", with("versioning", on, "lifecycle", doc("LifecycleConfiguration",
			"<Rule><ID>a</ID><Status>Disabled</Status><Prefix>p/</Prefix>"+ending+"</Rule>")),
			[]string{"versioning is on", "NoncurrentVersionExpiration"}},
		{"versioning with a rule for others", with("versioning", on, "lifecycle", rule("q/", ending)), []string{"versioning is on", "NoncurrentVersionExpiration"}},
		{"expiry of all", with("lifecycle", rule("", "<Expiration><Days>30</Days></Expiration>")), []string{`"r" removes records`}},
		{"expiry of some", with("lifecycle", rule("p/ns/", "<Expiration><Days>30</Days></Expiration>")), []string{`"r" removes records`}},
		{"expiry of others", with("lifecycle", rule("q/", "<Expiration><Days>30</Days></Expiration>")), nil},
		{"transition", with("lifecycle", rule("p/", "<Transition><Days>30</Days><StorageClass>GLACIER</StorageClass></Transition>")), []string{"storage class"}},
		{"lock", with("object-lock", doc("ObjectLockConfiguration", "<ObjectLockEnabled>Enabled</ObjectLockEnabled>")), []string{"object lock is on"}},
		{"retention", with("object-lock", doc("ObjectLockConfiguration", "<ObjectLockEnabled>Enabled</ObjectLockEnabled><Rule><DefaultRetention><Days>1</Days></DefaultRetention></Rule>")), []string{"another bucket"}},
		{"replication", with("replication", doc("ReplicationConfiguration", "<Rule><Status>Enabled</Status></Rule>")), []string{"replicated"}},
		{"replication off", with("replication", doc("ReplicationConfiguration", "<Rule><Status>Disabled</Status></Rule>")), nil},
		{"denied", map[string]reply{
			"versioning": {status: 403, code: "AccessDenied"}, "lifecycle": {status: 403, code: "AccessDenied"},
			"object-lock": {status: 403, code: "AccessDenied"}, "replication": {status: 403, code: "AccessDenied"},
		}, []string{"s3:GetBucketVersioning", "s3:GetLifecycleConfiguration", "s3:GetBucketObjectLockConfiguration", "s3:GetReplicationConfiguration"}},
		{"a relative that lacks it all", nil, []string{"does not tell", "does not tell", "does not tell", "does not tell"}},
		{"away", with("replication", reply{status: 500}), []string{"not checked: replication"}},
		{"another document", with("replication", doc("Error", "<Code>InternalError</Code>")), []string{"not checked: replication"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			got := inspected(t, at(t, serve(t, settings(row.answers)).URL))
			if !slices.EqualFunc(got, row.want, strings.Contains) {
				t.Errorf("got %q, want sentences with %q", got, row.want)
			}
		})
	}
}

// It looks at a real server, and at none.
func TestInspectNeverFails(t *testing.T) {
	t.Parallel()
	s := at(t, "http://127.0.0.1:1")
	if got := inspected(t, s); len(got) != 4 || !strings.Contains(got[0], "not checked") {
		t.Errorf("no server: %q", got)
	}
	real := gatewayHarness(t).Open(t).(*Store)
	defer real.Close()
	for _, line := range inspected(t, real) {
		if strings.Contains(line, "makes no sense") || strings.Contains(line, "complete") {
			t.Errorf("versitygw: %s", line)
		}
		t.Log(line)
	}
}

func inspected(t *testing.T, s *Store) []string {
	t.Helper()
	sentences, err := s.Inspect(t.Context())
	if err != nil {
		t.Errorf("Inspect: %v", err)
	}
	return sentences
}
