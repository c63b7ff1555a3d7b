package tenure

import (
	"bytes"
	"sync"

	"github.com/tenure-project/tenure/internal/core/lease"
)

// decoded keeps the lease records that this client read or wrote last, beside their
// bytes: whoever takes and frees a lease again and again reads what it wrote, and
// equal bytes need not be decoded, and checked, twice. Records are never changed in
// place, so they can be shared.
type decoded struct {
	mu     sync.Mutex
	byName map[string]decodedRecord
}

type decodedRecord struct {
	body []byte
	rec  *lease.Record
}

// mostDecoded bounds it. A process that uses more leases than that in turn decodes.
const mostDecoded = 64

func (d *decoded) get(name string, body []byte) *lease.Record {
	d.mu.Lock()
	defer d.mu.Unlock()
	if k := d.byName[name]; bytes.Equal(k.body, body) {
		return k.rec
	}
	return nil
}

// put keeps rec, whose canonical bytes are body.
func (d *decoded) put(name string, body []byte, rec *lease.Record) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.byName) >= mostDecoded || d.byName == nil {
		d.byName = map[string]decodedRecord{}
	}
	d.byName[name] = decodedRecord{body: body, rec: rec}
}
