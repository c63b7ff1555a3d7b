package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/slots"
)

// slotEventJSON is one line of slots claim without a command.
type slotEventJSON struct {
	Schema    int    `json:"schema"`
	Namespace string `json:"namespace"`
	Table     string `json:"table"`
	Owner     string `json:"owner"`
	Event     string `json:"event"`
	Range     string `json:"range"`
	Epoch     uint64 `json:"epoch"`
	Reason    string `json:"reason"`
}

// The events.
const (
	eventClaimed  = "claimed"
	eventLost     = "lost"
	eventReleased = "released"
)

// telling prints what becomes of ranges, from several goroutines.
type telling struct {
	x         *claiming
	namespace string
	mu        sync.Mutex
	owned     int
	none      sync.Cond // that nothing is owned
}

func newTelling(x *claiming, namespace string) *telling {
	t := &telling{x: x, namespace: namespace}
	t.none.L = &t.mu
	return t
}

// finish waits until the end of everything that was claimed is told.
func (t *telling) finish() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.owned > 0 {
		t.none.Wait()
	}
}

func (t *telling) count(change int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.owned += change; t.owned == 0 {
		t.none.Broadcast()
	}
}

func (t *telling) claimed(g *slots.Grant) {
	t.count(1)
	t.tell(g, eventClaimed, nil)
}

func (t *telling) ended(g *slots.Grant, cause error) {
	defer t.count(-1)
	if errors.Is(cause, tenure.ErrReleased) || errors.Is(cause, tenure.ErrShutdown) {
		t.tell(g, eventReleased, nil)
		return
	}
	t.tell(g, eventLost, &rangeError{cause})
}

func (t *telling) tell(g *slots.Grant, event string, why error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	a, reason := t.x.a, ""
	if why != nil {
		reason = why.Error()
	}
	if t.x.asJSON {
		_ = a.json(slotEventJSON{ // a write that fails is told by flush
			Schema: schema, Namespace: t.namespace, Table: t.x.table, Owner: t.x.owner, Event: event,
			Range: g.Range().String(), Epoch: g.Epoch(), Reason: reason,
		})
	} else {
		a.printf("%s %v epoch %d%s\n", event, g.Range(), g.Epoch(), because(why))
	}
	if err := a.out.flush(); err != nil {
		a.warn("%v", err) // nobody reads it, which is no reason to end
		a.out.err = nil
	}
}

func because(why error) string {
	if why == nil {
		return ""
	}
	return ": " + errorText(why)
}

// ownMemory refuses a store that no other process can see.
func ownMemory() error {
	return invalid("a store in memory (mem:) is this process's alone: nobody could see who owns the slots")
}

// serve owns the ranges until ctx ends. A range that is lost is claimed again, and does not
// touch the others.
func (x *claiming) serve(ctx context.Context) error {
	if x.t.ofOneProcess() {
		return ownMemory()
	}
	var cfg slots.HostConfig
	if x.volume != "" {
		if info, err := os.Stat(x.volume); err != nil || !info.IsDir() {
			return invalid("--volume %s is no folder: %v", x.volume, err)
		}
		v, err := slots.OpenVolume(x.volume)
		if err != nil {
			return err
		}
		cfg.Volume = v // the kernel frees it when this process has ended, whatever calls are under way
	}
	wait, cancel := x.waiting(ctx)
	defer cancel()
	c, err := x.a.open(wait, tenure.WithTTL(x.ttl), tenure.WithLabel(fmt.Sprintf("%.100s/%d", x.owner, os.Getpid())))
	if err != nil {
		return &endedError{cause: cmp.Or(context.Cause(wait), err), err: err}
	}
	return errors.Join(x.serveWith(ctx, wait, c, cfg), c.Close())
}

func (x *claiming) serveWith(ctx, wait context.Context, c *tenure.Client, cfg slots.HostConfig) error {
	tells := newTelling(x, c.Namespace())
	defer tells.finish()
	cfg.OnClaim, cfg.OnLoss = tells.claimed, tells.ended
	o, err := x.claim(wait, c, cfg)
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
	case err := <-o.ran: // it is over by itself
		o.stop()
		return fmt.Errorf("table %q: %w", x.table, err)
	}
	return ignoreReleased(o.end(context.WithoutCancel(ctx)))
}
