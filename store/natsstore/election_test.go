package natsstore

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/tenure-project/tenure/store"
)

// While the bucket changes its leader again and again, every answer stays true:
// what was acknowledged is in the stream, once, and what was refused is not.
// The stream keeps all messages, so that nothing is hidden.
func answersWhileLeadersChange(t *testing.T, c *cluster) {
	bucket := newBucket()
	js, err := jetstream.New(dial(t, c.servers[0].ClientURL()))
	if err != nil {
		t.Fatal(err)
	}
	var st jetstream.Stream
	eventually(t, "bucket", func() bool {
		st, err = js.CreateOrUpdateStream(within(t, 5*time.Second), jetstream.StreamConfig{
			Name: "KV_" + bucket, Subjects: []string{"$KV." + bucket + ".>"}, Replicas: 3, MaxMsgsPerSubject: -1, Discard: jetstream.DiscardNew,
		})
		return err == nil
	})
	const workers, each, atLeast = 4, 60, 5
	var changes atomic.Int32
	told := make([]map[string]error, workers)
	var wg sync.WaitGroup
	for i := range workers {
		s := c.open(i%3, bucket, "")
		told[i] = map[string]error{}
		wg.Go(func() {
			for n := 0; n < each || changes.Load() < atLeast && n < 100*each; n++ {
				body := fmt.Sprintf("worker %d write %d", i, n)
				told[i][body] = writeOnce(t, s, body)
			}
		})
	}
	over := make(chan struct{})
	go func() { wg.Wait(); close(over) }()
	tick := time.NewTicker(150 * time.Millisecond)
	defer tick.Stop()
	for done := false; !done; {
		select {
		case <-over:
			done = true
		case <-tick.C:
			if _, err := js.Conn().RequestWithContext(within(t, 5*time.Second), "$JS.API.STREAM.LEADER.STEPDOWN.KV_"+bucket, nil); err == nil {
				changes.Add(1)
			}
		}
	}
	stored := map[string]int{}
	var info *jetstream.StreamInfo
	eventually(t, "state of the stream", func() bool {
		info, err = st.Info(within(t, 5*time.Second))
		return err == nil
	})
	for seq := info.State.FirstSeq; seq <= info.State.LastSeq; seq++ {
		eventually(t, "message", func() bool {
			m, err := st.GetMsg(within(t, 5*time.Second), seq)
			if err == nil {
				stored[string(m.Data)]++
			}
			return err == nil
		})
	}
	counts := map[string]int{}
	for _, answers := range told {
		for body, err := range answers {
			switch n := stored[body]; {
			case err == nil:
				counts["acknowledged"]++
				if n != 1 {
					t.Errorf("%q was acknowledged and is stored %d times", body, n)
				}
			case errors.Is(err, store.ErrUnknown):
				counts["unknown"]++
				if n > 1 {
					t.Errorf("%q is unknown and stored %d times: it was sent twice", body, n)
				}
			default:
				counts["refused"]++
				if n != 0 {
					t.Errorf("%q was refused with %v, but it is stored", body, err)
				}
			}
		}
	}
	t.Logf("%d changes of the leader, writes: %v", changes.Load(), counts)
	if changes.Load() < atLeast || counts["acknowledged"] == 0 {
		t.Error("the test has shown nothing")
	}
}

// writeOnce writes body over what is there, or as the first.
func writeOnce(t *testing.T, s *Store, body string) error {
	for {
		o, err := s.Get(within(t, 2*time.Second), key("k"), 100)
		switch {
		case errors.Is(err, store.ErrNotFound):
			_, err = s.Create(within(t, 2*time.Second), key("k"), []byte(body))
			return err
		case err == nil:
			_, err = s.Replace(within(t, 2*time.Second), key("k"), []byte(body), o.Version)
			return err
		case t.Context().Err() != nil:
			return err
		}
	}
}
