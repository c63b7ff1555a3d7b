package authority

import (
	"bytes"
	"context"
	"encoding/json"
	"sync"

	core "github.com/tenure-project/tenure/internal/core/authority"
)

// The bounds of reading ahead.
const (
	aheadFrom  = 64       // entries left to be read, from which on a listing is worth it
	aheadWidth = 32       // reads at the same time
	aheadSteps = 64       // how far along the links
	aheadBytes = 64 << 20 // of objects that wait for the walk
)

// ahead reads objects of the log before a walk asks for them, so that a walk takes
// its links' reads many at a time and not one after the other. What is there is found
// by a listing, in the order of names, which says nothing of the order of links; what
// finds no room then, and blobs, along the links of what was read. All of it is a
// guess that saves time: the walk verifies each object by its link, reads by the link
// what was not read ahead, and meets no error, no absence and no excess of bytes but
// its own. Names are never used again (LA8), so bytes that were read before are as
// good.
//
// It holds at most 64 MiB of objects beside 32 reads that are on their way, and a few
// hundred bytes for each name: at most four for each entry that is left, and 1,024.
// fetch is for one goroutine.
type ahead struct {
	f    *files
	room int // aheadBytes, of which a quarter is for reads along the links
	ctx  context.Context
	quit context.CancelFunc // nil: nothing is read ahead
	all  sync.WaitGroup
	gate chan struct{} // holds one for each read that is on its way

	mu      sync.Mutex
	objects map[core.Name]*object
	held    int  // bytes of what waits, and of what is read along the links
	listed  bool // the listing came to its end
	lacking bool // there is something to be read along the links
}

// object is what is known of one object of the log.
type object struct {
	stage   stage
	got     chan struct{} // closed when the read comes back
	body    []byte        // while it waits
	size    int           // how many bytes it has or may have
	learned bool          // links is known, or there are none
	links   []core.Name   // what it links
}

// stage is how far an object came.
type stage int

const (
	unread  stage = iota
	reading       // the read is on its way
	waiting       // it was read and not asked for yet
	passed        // the walk asked for it, or is to read it by its link
)

func newAhead(f *files) *ahead { return &ahead{f: f, room: aheadBytes} }

// start begins to read ahead for a walk that has about left entries to read; few are
// not worth the listing. stop is due after it.
func (a *ahead) start(ctx context.Context, left uint64) {
	if left < aheadFrom || a.quit != nil {
		return
	}
	a.ctx, a.quit = context.WithCancel(ctx)
	a.gate, a.objects = make(chan struct{}, aheadWidth), map[core.Name]*object{}
	a.all.Go(func() { a.scan(int(4*left + 1024)) })
}

// stop ends whatever reads ahead.
func (a *ahead) stop() {
	if a.quit != nil {
		a.quit()
		a.all.Wait()
	}
}

// fetch is files.fetch.
func (a *ahead) fetch(ctx context.Context, n core.Name, limit int) ([]byte, error) {
	if a.quit != nil {
		if body := a.take(ctx, n); body != nil {
			return body, nil
		}
	}
	return a.f.fetch(ctx, n, limit)
}

// take is what was read ahead of n; nil if nothing was. It waits for a read that is
// on its way, which takes no longer than one of its own would.
func (a *ahead) take(ctx context.Context, n core.Name) []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	o := a.object(n)
	a.follow(o)
	if o.stage == reading {
		a.mu.Unlock()
		select {
		case <-o.got:
		case <-ctx.Done():
		}
		a.mu.Lock()
	}
	body := o.body
	a.held -= len(body)
	o.stage, o.body = passed, nil
	return body
}

// object is what is known of n. The caller holds mu.
func (a *ahead) object(n core.Name) *object {
	o := a.objects[n]
	if o == nil {
		o = &object{size: core.MaxEntry, learned: n.Kind == core.KindBlob}
		a.objects[n] = o
	}
	return o
}

// scan reads the entries that a listing finds, at most that many. A listing that
// fails or hangs gives what it gave until then.
func (a *ahead) scan(most int) {
	var names []core.Name
	for element, err := range a.f.elements(a.ctx, a.f.key(string(core.KindEntry), ""), "") {
		if err != nil || len(names) == most {
			break
		}
		if n, err := core.ParseName(core.KindEntry, element); err == nil {
			names = append(names, n)
		}
	}
	for _, n := range names {
		select {
		case a.gate <- struct{}{}:
		case <-a.ctx.Done():
			return
		}
		a.mu.Lock()
		if o := a.object(n); o.stage == unread {
			a.read(n, o, 0, a.room/4*3)
		} else {
			<-a.gate
		}
		a.mu.Unlock()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.listed = true
}

// follow begins to read what the walk will ask for after o, as far as the links are
// known and there is room. The caller holds mu.
func (a *ahead) follow(o *object) {
	if !a.listed || !a.lacking {
		return
	}
	next, known := []*object{o}, map[*object]bool{}
	for i := 0; i < len(next) && i < aheadSteps; i++ {
		if next[i].body != nil && !next[i].learned {
			a.learn(next[i], next[i].body)
		}
		for _, n := range next[i].links {
			b := a.object(n)
			if known[b] || b.stage == passed {
				continue
			}
			known[b] = true
			next = append(next, b)
			if b.stage != unread || a.held+b.size > a.room {
				continue
			}
			select {
			case a.gate <- struct{}{}:
				a.read(n, b, b.size, a.room)
			default:
				return
			}
		}
	}
}

// read begins to read n, of which room bytes count as held meanwhile; what makes them
// more than most is not kept, but its links are. The caller holds mu and put one into
// the gate.
func (a *ahead) read(n core.Name, o *object, room, most int) {
	o.stage, o.got = reading, make(chan struct{})
	a.held += room
	a.all.Go(func() {
		defer func() { <-a.gate }()
		body := a.get(n)
		a.mu.Lock()
		defer a.mu.Unlock()
		defer close(o.got)
		a.held -= room
		if len(body) == 0 {
			o.stage = passed
			return
		}
		kept := a.held+len(body) <= most
		if kept {
			o.stage, o.body = waiting, body
			a.held += len(body)
		} else {
			o.stage, o.size, a.lacking = unread, len(body), true
		}
		if !kept || bytes.Contains(body, blobField) {
			a.learn(o, body)
		}
	})
}

// blobField is in the bytes of every entry that has a blob.
var blobField = []byte(`"blob":`)

// learn notes what the bytes of an entry link, if they are one's: nobody verified them.
// It takes as long as reading them once more, and is left out where nothing needs it.
// The caller holds mu.
func (a *ahead) learn(o *object, body []byte) {
	var e core.Entry
	if o.learned || json.Unmarshal(body, &e) != nil {
		return
	}
	o.learned = true
	for _, l := range []*core.Link{e.Previous, e.Mark} {
		if l != nil && sound(l.Name()) {
			o.links = append(o.links, l.Name())
		}
	}
	if n, ok := e.BlobName(); ok && sound(n) && e.Blob.Valid() == nil {
		o.links = append(o.links, n)
		a.object(n).size, a.lacking = int(e.Blob.Length), true
	}
}

// get reads n once; nil if that fails, whatever it is: the walk reads it by its link
// then.
func (a *ahead) get(n core.Name) []byte {
	limit := core.MaxEntry
	if n.Kind == core.KindBlob {
		limit = core.MaxBlob
	}
	body, err := a.f.get(a.ctx, a.f.key(string(n.Kind), n.Element()), limit)
	if err != nil {
		return nil
	}
	return body
}

// sound reports whether n can be a name.
func sound(n core.Name) bool {
	_, err := core.ParseName(n.Kind, n.Element())
	return err == nil
}
