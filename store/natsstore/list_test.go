package natsstore

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-project/tenure/store"
)

// paged answers STREAM.INFO in pages of size. change is called between pages.
func paged(c *script, size int, subjects *[]string, change func(page int)) {
	page := 0
	c.api["info"] = func(body string) string {
		var request struct {
			Offset int    `json:"offset"`
			Filter string `json:"subjects_filter"`
		}
		if json.Unmarshal([]byte(body), &request) != nil || request.Filter == "" {
			return c.infoOf(nil)
		}
		if page++; change != nil {
			change(page)
		}
		all := slices.Sorted(slices.Values(*subjects))
		from := min(request.Offset, len(all))
		some := map[string]int{}
		for _, s := range all[from:min(from+size, len(all))] {
			some[s] = 1
		}
		return encode(map[string]any{"created": created, "total": len(all), "offset": from, "limit": size, "state": map[string]any{"subjects": some}})
	}
}

// The server gives the subjects in pages by number. Keys that are removed
// between two pages shift the rest, and none may fall into the gap.
//
// SPEC ST6
func TestPagesThatShift(t *testing.T) {
	t.Parallel()
	for _, removed := range []int{0, 1, 1500, 2900} {
		t.Run(fmt.Sprintf("%d removed", removed), func(t *testing.T) {
			t.Parallel()
			c := newScript(t)
			var subjects []string
			for i := range 9000 {
				subjects = append(subjects, fmt.Sprintf("$KV.%s.test.lease.%05d", c.bucket, i))
			}
			kept := slices.Clone(subjects[removed:])
			s := c.open("")
			c.set(func(c *script) {
				paged(c, 3000, &subjects, func(page int) {
					if page == 2 {
						subjects = slices.Clone(kept)
					}
				})
			})
			var keys []string
			for k, err := range s.List(within(t, 20*time.Second), "test/", "") {
				if err != nil {
					t.Fatal(err)
				}
				keys = append(keys, k)
			}
			if !slices.IsSorted(keys) || len(slices.Compact(slices.Clone(keys))) != len(keys) {
				t.Error("the keys are not in order, each once")
			}
			for _, subject := range kept {
				k, _ := s.place.key(subject)
				if _, found := slices.BinarySearch(keys, k); !found {
					t.Fatalf("the listing leaves out %s, which was there all the time", k)
				}
			}
		})
	}
}

// SPEC ST6 ST8
func TestAListingThatFails(t *testing.T) {
	t.Parallel()
	for name, reply := range map[string]string{
		"no stream":      refuse(404, codeNoStream, "stream not found"),
		"another bucket": encode(map[string]any{"created": created.Add(time.Second), "total": 1, "state": map[string]any{"subjects": map[string]int{"x": 1}}}),
		"cut off":        `{"created":"2023`,
		"empty object":   "{}",
		"not JSON":       "-ERR",
		"no answer":      "",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newScript(t)
			s := c.open("")
			c.set(func(c *script) { c.info = reply })
			n, failed := 0, error(nil)
			for _, err := range s.List(c.patient, "", "") {
				n, failed = n+1, err
			}
			if n != 1 || !sameKind(failed, store.ErrUnavailable) {
				t.Errorf("gave %d results and %v", n, failed)
			}
		})
	}
}

// What is in the bucket beside keys, and what a prefix could do to a filter.
//
// SPEC ST6 ST11
func TestFilters(t *testing.T) {
	t.Parallel()
	s := freshStore(t)
	ctx := within(t, 20*time.Second)
	for _, k := range []string{"a/b", "a/bc", "a-b/c", "a/b/c", "b"} {
		if _, err := s.Create(ctx, k, nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, subject := range []string{"SYNC", "a.Upper", "a.b$c"} {
		if _, err := s.w.nc.RequestWithContext(ctx, s.place.root+subject, nil); err != nil {
			t.Fatal(err)
		}
	}
	for prefix, want := range map[string]string{
		"": "a-b/c a/b a/b/c a/bc b", "a": "a-b/c a/b a/b/c a/bc", "a/": "a/b a/b/c a/bc", "a/b": "a/b a/b/c a/bc", "a/b/": "a/b/c",
		"a/*/": "", ">": "", "*": "", "a//": "", "/": "", "A": "", "SYNC": "", "a.b": "",
	} {
		var keys []string
		for k, err := range s.List(ctx, prefix, "") {
			if err != nil {
				t.Fatalf("List(%q): %v", prefix, err)
			}
			keys = append(keys, k)
		}
		if got := strings.Join(keys, " "); got != want {
			t.Errorf("List(%q) gives %q, want %q", prefix, got, want)
		}
	}
}
