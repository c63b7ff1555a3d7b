package tenure

import (
	"context"
	"slices"
)

// line lets one caller at a time act on a name in this client, in the order of
// arrival (LS7): ten thousand waiters ask the store as one.
type line struct {
	waiting []chan struct{}
}

// enter joins the line for name and returns when it is the caller's turn. With
// wait false it does not wait: ok is false if anybody is in line. leave passes
// the turn on; it may be called more than once. Without an error, the caller is
// counted in c.acquiring, which Close waits for.
func (c *Client) enter(ctx context.Context, name string, wait bool) (leave func(), ok bool, err error) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil, false, ErrClosed
	}
	c.acquiring.Add(1)
	l := c.lines[name]
	if l == nil {
		c.lines[name] = &line{}
		c.mu.Unlock()
		return c.leaver(name), true, nil
	}
	if !wait {
		c.mu.Unlock()
		return nil, false, nil
	}
	turn := make(chan struct{})
	l.waiting = append(l.waiting, turn)
	c.mu.Unlock()
	select {
	case <-turn:
		return c.leaver(name), true, nil
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-c.accept.Done():
		err = ErrClosed
	}
	c.mu.Lock()
	i := slices.Index(l.waiting, turn)
	if i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
	}
	c.mu.Unlock()
	if i < 0 { // the turn came at the same moment: pass it on
		c.leaver(name)()
	}
	c.acquiring.Done()
	return nil, false, err
}

func (c *Client) leaver(name string) func() {
	left := false
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if left {
			return
		}
		left = true
		l := c.lines[name]
		if len(l.waiting) == 0 {
			delete(c.lines, name)
			return
		}
		close(l.waiting[0])
		l.waiting = l.waiting[1:]
	}
}
