package slots

import (
	"errors"
	"strings"
	"testing"

	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/store"
)

// A plan under an older token is refused, whoever wrote last; one that rests on another
// plan, too.
//
// SPEC SL8
// CASE B58
func TestAPlanOfAnOlderLeaderIsFenced(t *testing.T) {
	t.Parallel()
	tab := full(RowsForm)
	shards := []Shard{{Range: r(0, 9), Target: "a"}, {Range: r(10, 19), Target: "b"}}
	publish := func(p *Plan, token, seq uint64) (*Plan, error) {
		return p.Publish(tab, Publication{Token: token, Seq: seq, Shards: shards, Attempt: id(9)})
	}
	first := must(publish(nil, 3, 0))
	second := must(publish(first, 5, 1))
	if second.Seq != 2 || second.Token != 5 || second.Birth != tab.Birth || first.Token != 3 {
		t.Fatalf("%+v", second)
	}
	var fenced *FencedError
	if _, err := publish(second, 4, 2); !errors.As(err, &fenced) || !errors.Is(err, ErrFenced) || fenced.Have != 5 || fenced.Given != 4 || !strings.Contains(err.Error(), "5") {
		t.Error(err)
	}
	pinned := must(second.Pin(r(0, 9), "c", id(10)))
	if _, err := publish(pinned, 4, 3); !errors.Is(err, ErrFenced) {
		t.Error("an operator's write let an older leader in:", err)
	}
	if _, err := publish(pinned, 5, 2); !errors.Is(err, store.ErrConflict) {
		t.Error("a plan that did not see a pin:", err)
	}
	if _, err := publish(nil, 5, 2); !errors.Is(err, store.ErrConflict) {
		t.Error("a plan that rests on one which is gone:", err)
	}
	if _, err := publish(nil, 0, 0); !errors.Is(err, store.ErrInvalid) {
		t.Error("a plan under no token:", err)
	}
	if next, err := publish(pinned, 5, 3); err != nil || next.Seq != 4 {
		t.Error(err)
	}
}

// Pins are the operator's: no plan sets, drops or moves one.
//
// SPEC SL8
func TestPinsSurviveEveryPlan(t *testing.T) {
	t.Parallel()
	tab := full(RowsForm)
	p := must((*Plan)(nil).Publish(tab, Publication{Token: 1, Shards: []Shard{{Range: r(0, 9), Target: "a", Pin: "x"}, {Range: r(10, 19)}}, Attempt: id(9)}))
	if p.Shards[0].Pin != "" {
		t.Error("a balancer pins")
	}
	p = must(p.Pin(r(10, 19), "b", id(10)))
	if p.Seq != 2 || p.Token != 1 || p.Attempt != id(10) || p.ShardOf(15).Pin != "b" {
		t.Fatalf("%+v", p)
	}
	next := must(p.Publish(tab, Publication{Token: 2, Seq: 2, Shards: []Shard{{Range: r(0, 4)}, {Range: r(5, 9)}, {Range: r(10, 19), Target: "a", Pin: "a"}}, Attempt: id(11)}))
	if s := next.ShardOf(10); s.Pin != "b" || s.Target != "a" {
		t.Errorf("%+v", s)
	}
	if _, err := next.Publish(tab, Publication{Token: 2, Seq: 3, Shards: []Shard{{Range: r(10, 18)}}, Attempt: id(11)}); !errors.Is(err, store.ErrInvalid) {
		t.Error("a pinned shard is cut:", err)
	}
	if _, err := next.Pin(r(10, 18), "b", id(12)); !errors.Is(err, store.ErrInvalid) {
		t.Error(err)
	}
	if _, err := next.Pin(r(10, 19), " b", id(12)); !errors.Is(err, store.ErrInvalid) {
		t.Error(err)
	}
	loose := must(next.Pin(r(10, 19), "", id(12)))
	if loose.ShardOf(10).Pin != "" || next.ShardOf(10).Pin != "b" || loose.ShardOf(20) != nil || loose.ShardOf(4).Range != r(0, 4) {
		t.Errorf("%+v", loose)
	}
}

// SPEC SL8
func TestABadPlanIsRefused(t *testing.T) {
	t.Parallel()
	tab := full(RowsForm)
	for what, n := range map[string]Publication{
		"overlap":      {Shards: []Shard{{Range: r(0, 9)}, {Range: r(9, 9)}}},
		"out of order": {Shards: []Shard{{Range: r(10, 19)}, {Range: r(0, 9)}}},
		"upside down":  {Shards: []Shard{{Range: Range{9, 0}}}},
		"an owner":     {Shards: []Shard{{Target: "a\n"}}},
		"a load":       {Shards: []Shard{{Load: record.MaxNumber + 1}}},
		"a state":      {State: strings.Repeat("x", MaxPlanState+1)},
		"a token":      {Token: record.MaxNumber + 1},
		"an attempt":   {Attempt: "x"},
	} {
		if n.Token == 0 {
			n.Token = 1
		}
		if n.Attempt == "" {
			n.Attempt = id(1)
		}
		if p, err := (*Plan)(nil).Publish(tab, n); !errors.Is(err, store.ErrInvalid) || p != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	all := make([]Shard, Count)
	for i := range all {
		all[i] = Shard{Range: r(uint16(i), uint16(i)), Load: 1 << 20, Target: "host-" + id(i%500)}
	}
	p := must((*Plan)(nil).Publish(tab, Publication{Token: 1, Shards: all, State: strings.Repeat(`"`, MaxPlanState), Attempt: id(1)}))
	if body := must(p.Encode()); len(must(DecodePlan("k", "orders", body)).Shards) != Count {
		t.Error("a plan of every slot does not fit")
	} else {
		t.Logf("a plan of %d shards and the largest state has %d bytes", Count, len(body))
	}
}
