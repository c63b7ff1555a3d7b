package slots

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenure-project/tenure/store/faultstore"
)

// away is a store to which each way takes d, and a log.
func away(d time.Duration, log *safeBuffer) func(*hostSetup) {
	return func(s *hostSetup) {
		s.link.Rules = append(s.link.Rules, faultstore.Rule{Fault: faultstore.DelayReply(d, d)}, faultstore.Rule{Fault: faultstore.Delay(d, d)})
		s.cfg.Log = slog.New(slog.NewTextHandler(log, nil))
	}
}

type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// crowd are hosts of ten ranges each that begin at the same instant.
func (w *tableWorld) crowd(hosts int, edit func(*hostSetup)) []*hostProc {
	const ranges, each = 10, 16
	all := make([]*hostProc, hosts)
	for i := range all {
		var mine []Range
		for k := range ranges {
			first := uint16((i*ranges + k) * each)
			mine = append(mine, rng(first, first+each-1))
		}
		all[i] = w.host(fmt.Sprintf("h%02d", i), mine, edit)
	}
	for _, h := range all {
		h.run()
	}
	return all
}

// Many hosts that renew by themselves in one register keep their ranges, and a renewal takes
// them a read and a write and little more: they do not renew in step.
//
// SPEC SL5
func TestManySelfHostsInOneRegister(t *testing.T) {
	t.Parallel()
	for hosts, most := range map[int]float64{3: 2.6, 10: 2.6, 30: 3.5} {
		t.Run(fmt.Sprint(hosts), func(t *testing.T) {
			t.Parallel()
			inTable(t, RegisterForm, func(t *testing.T, w *tableWorld) {
				log := &safeBuffer{}
				all := w.crowd(hosts, away(10*time.Millisecond, log))
				until(t, 30*time.Second, func() bool {
					n := 0
					for _, h := range all {
						n += len(h.Held())
					}
					return n == 10*hosts
				})
				bubbleSleep(hostTTL)
				before := 0
				for _, h := range all {
					before += h.calls()
				}
				const span = 2 * time.Minute
				bubbleSleep(span)
				w.check()
				ended, calls := 0, -before
				for _, h := range all {
					calls += h.calls()
					h.mu.Lock()
					ended += len(h.ended)
					h.mu.Unlock()
				}
				each := float64(calls) / float64(hosts) / float64(span/(hostTTL/4))
				t.Logf("%d hosts: %.2f requests per host and renewal", hosts, each)
				if ended > 0 || each > most || log.String() != "" {
					t.Errorf("%d grants ended, %.2f requests per host and renewal: %s", ended, each, log)
				}
			})
		})
	}
}

// More hosts than the register bears are told so, each once.
//
// SPEC SL5
func TestTooManySelfHostsAreTold(t *testing.T) {
	t.Parallel()
	inTable(t, RegisterForm, func(t *testing.T, w *tableWorld) {
		log := &safeBuffer{}
		all := w.crowd(12, away(250*time.Millisecond, log))
		bubbleSleep(5 * time.Minute)
		w.check()
		if n := strings.Count(log.String(), "more hosts renew in one record than the store bears"); n == 0 || n > len(all) {
			t.Errorf("%d warnings: %s", n, log)
		}
		ended := 0
		for _, h := range all {
			h.mu.Lock()
			ended += len(h.ended)
			h.mu.Unlock()
		}
		t.Logf("%d of %d grants ended", ended, 10*len(all))
	})
}
