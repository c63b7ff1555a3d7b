package slots

import (
	"errors"
	"fmt"

	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/store"
)

// MaxTable bounds the bytes of an encoded table, which is the register form's: 16,384 rows
// take about 1.4 MB.
const MaxTable = 4 << 20

// tableRecord is the record of a table. The rows form has no more than the head. In the
// register form everything that is told twice is told once, in the order of its first
// use: rows, free rows and former owners are lists of numbers of which some are places
// in Hosts or Texts, -1 for none. Invariants, checked by Valid besides those of Table:
//
//  1. a table of the rows form has no hosts, texts or rows;
//  2. hosts and texts are distinct, each is used, and in the order of their first use;
//  3. there is one freed for each row without a host, in the order of the rows, and as
//     many former owners as the rows say.
type tableRecord struct {
	V       int                `json:"v"`
	Table   string             `json:"table"`
	Form    Form               `json:"form"`
	Birth   string             `json:"birth"`
	Created int64              `json:"created_ms"`
	Counter uint64             `json:"counter"`
	Writer  string             `json:"writer_attempt"`
	Hosts   []Host             `json:"hosts,omitempty"`
	Texts   []string           `json:"texts,omitempty"`
	Rows    [][rowLen]int64    `json:"rows,omitempty"`
	Freed   [][freedLen]int64  `json:"freed,omitempty"`
	From    [][formerLen]int64 `json:"from,omitempty"`

	table *Table // what Valid found
}

// The numbers of a row, in order: first and last slot, epoch, renewal, since, attempt
// (text), host, how many former owners. Of a free row: owner (text), how (text), at,
// successor (text), hold, superseded TTL, why (text), by (text). Of a former owner: owner
// (text), epoch, rows, how (text), why (text), by (text), evidence (text).
const (
	rowLen    = 8
	freedLen  = 8
	formerLen = 7
)

// Encode returns the table's canonical bytes: of the rows form only the counter's record,
// of the register form everything, for which the table must be whole.
func (t *Table) Encode() ([]byte, error) {
	if t.Form == RegisterForm && t.Part != All {
		return nil, invalid("encode", "only the slots %v of the table were read", t.Part)
	}
	return record.Encode(t.pack(), MaxTable)
}

// DecodeTable reads the record of the table called name strictly (ST7). One of the rows
// form is returned without rows, as what Assemble needs: it decides nothing yet but a
// Jump. What cannot be right is ErrCorrupt, a newer level ErrNewer.
func DecodeTable(key, name string, body []byte) (*Table, error) {
	t, err := DecodeAnyTable(key, body)
	if err == nil && t.Name != name {
		return nil, store.Errorf(store.ErrCorrupt, "", "decode", key, "the table says it is %q, not %q", t.Name, name)
	}
	return t, err
}

// DecodeAnyTable is DecodeTable of whatever table it is: of a long name the key holds only
// a digest.
func DecodeAnyTable(key string, body []byte) (*Table, error) {
	var r tableRecord
	if err := record.Decode(key, body, &r); err != nil {
		return nil, err
	}
	return r.table, nil
}

// Valid checks the invariants.
func (r *tableRecord) Valid() error {
	t, err := r.unpack()
	if err != nil {
		return err
	}
	r.table = t
	return t.Valid()
}

// packer turns a table into numbers.
type packer struct {
	out   *tableRecord
	texts map[string]int64
	hosts map[hostKey]int64
	known map[*Host]int64
	last  string // the text of the last attempt, which neighbours often share
	place int64
}

// hostKey is a host by value.
type hostKey struct {
	host   Host
	volume Volume
}

func (t *Table) pack() *tableRecord {
	r := &tableRecord{V: t.V, Table: t.Name, Form: t.Form, Birth: t.Birth, Created: t.Created, Counter: t.Counter, Writer: t.Writer}
	if t.Form == RowsForm || len(t.Rows) == 0 {
		return r
	}
	p := &packer{out: r, texts: map[string]int64{}, hosts: map[hostKey]int64{}, known: map[*Host]int64{}}
	r.Rows = make([][rowLen]int64, len(t.Rows))
	for i := range t.Rows {
		row := &t.Rows[i]
		if row.Attempt != p.last {
			p.last, p.place = row.Attempt, p.text(row.Attempt)
		}
		r.Rows[i] = [rowLen]int64{int64(row.Range.A), int64(row.Range.B), int64(row.Epoch), int64(row.Renewal), row.Since, p.place, p.host(row.Host), int64(len(row.From))}
		if f := row.Freed; f != nil {
			r.Freed = append(r.Freed, [freedLen]int64{p.text(f.Owner), p.text(f.How), f.At, p.text(f.Successor), f.HoldMS, f.SupersededTTLMS, p.text(f.Why), p.text(f.By)})
		}
		for _, f := range row.From {
			r.From = append(r.From, [formerLen]int64{p.text(f.Owner), int64(f.Epoch), int64(f.Rows), p.text(f.How), p.text(f.Why), p.text(f.By), p.text(f.Evidence)})
		}
	}
	return r
}

func (p *packer) text(s string) int64 {
	if s == "" {
		return -1
	}
	at, ok := p.texts[s]
	if !ok {
		at = int64(len(p.out.Texts))
		p.texts[s] = at
		p.out.Texts = append(p.out.Texts, s)
	}
	return at
}

func (p *packer) host(h *Host) int64 {
	if h == nil {
		return -1
	}
	at, ok := p.known[h]
	if ok {
		return at
	}
	key := hostKey{host: *h}
	if h.Volume != nil {
		key.volume = *h.Volume
	}
	key.host.Volume = nil
	if at, ok = p.hosts[key]; !ok {
		at = int64(len(p.out.Hosts))
		p.hosts[key] = at
		p.out.Hosts = append(p.out.Hosts, *h)
	}
	p.known[h] = at
	return at
}

// reader turns numbers into a table.
type reader struct {
	in           *tableRecord
	texts, hosts int // how many were used
	freed, from  int
	err          error
}

func (r *tableRecord) unpack() (*Table, error) {
	t := &Table{V: r.V, Name: r.Table, Form: r.Form, Birth: r.Birth, Created: r.Created, Counter: r.Counter, Writer: r.Writer, Part: All}
	if r.Form == RowsForm {
		t.Part = nothing
		if len(r.Hosts)+len(r.Texts)+len(r.Rows)+len(r.Freed)+len(r.From) > 0 {
			return nil, errors.New("a table of the rows form has rows in its record")
		}
		return t, nil
	}
	if err := r.distinct(); err != nil {
		return nil, err
	}
	in := &reader{in: r}
	t.Rows = make([]Row, len(r.Rows))
	for i := range r.Rows {
		if in.row(&r.Rows[i], &t.Rows[i]); in.err != nil {
			return nil, fmt.Errorf("row %d: %w", i, in.err)
		}
	}
	if in.texts != len(r.Texts) || in.hosts != len(r.Hosts) || in.freed != len(r.Freed) || in.from != len(r.From) {
		return nil, errors.New("the record tells more than its rows use")
	}
	return t, nil
}

func (r *tableRecord) distinct() error {
	texts := make(map[string]struct{}, len(r.Texts))
	for _, s := range r.Texts {
		texts[s] = struct{}{}
	}
	hosts := make(map[hostKey]struct{}, len(r.Hosts))
	for _, h := range r.Hosts {
		key := hostKey{host: h}
		if h.Volume != nil {
			key.volume = *h.Volume
		}
		key.host.Volume = nil
		hosts[key] = struct{}{}
	}
	if _, empty := texts[""]; empty || len(texts) != len(r.Texts) || len(hosts) != len(r.Hosts) {
		return errors.New("a text or host is empty or told twice")
	}
	return nil
}

func (in *reader) row(n *[rowLen]int64, r *Row) {
	if n[0] < 0 || n[0] > Last || n[1] < 0 || n[1] > Last || n[7] < 0 || n[7] > MaxPast {
		in.fail("the range or the number of former owners is out of bounds")
		return
	}
	r.Range = Range{uint16(n[0]), uint16(n[1])}
	r.Epoch, r.Renewal, r.Since = in.count(n[2]), in.count(n[3]), n[4]
	r.Attempt = in.text(n[5])
	if r.Host = in.host(n[6]); n[6] == -1 {
		r.Freed = in.freedRow()
	}
	for range n[7] {
		if in.from == len(in.in.From) {
			in.fail("a former owner is missing")
			return
		}
		f := &in.in.From[in.from]
		in.from++
		if f[2] < 1 || f[2] > Count {
			in.fail("the number of former rows is out of bounds")
		}
		r.From = append(r.From, Past{Owner: in.text(f[0]), Epoch: in.count(f[1]), Rows: int(f[2]), How: in.text(f[3]), Why: in.text(f[4]), By: in.text(f[5]), Evidence: in.text(f[6])})
	}
}

func (in *reader) freedRow() *Freed {
	if in.freed == len(in.in.Freed) {
		in.fail("a free row does not say why")
		return nil
	}
	f := &in.in.Freed[in.freed]
	in.freed++
	return &Freed{Owner: in.text(f[0]), How: in.text(f[1]), At: f[2], Successor: in.text(f[3]), HoldMS: f[4], SupersededTTLMS: f[5], Why: in.text(f[6]), By: in.text(f[7])}
}

func (in *reader) text(at int64) string {
	if at == -1 || !in.use(at, &in.texts, len(in.in.Texts)) {
		return ""
	}
	return in.in.Texts[at]
}

func (in *reader) host(at int64) *Host {
	if at == -1 || !in.use(at, &in.hosts, len(in.in.Hosts)) {
		return nil
	}
	return &in.in.Hosts[at]
}

// use reports whether at is a place that was used already, or the next one.
func (in *reader) use(at int64, used *int, n int) bool {
	switch {
	case at < 0 || at > int64(*used) || at >= int64(n):
		in.fail("a place is out of bounds or out of order")
		return false
	case at == int64(*used):
		*used++
	}
	return true
}

func (in *reader) count(n int64) uint64 {
	if n < 0 {
		in.fail("a count is negative")
	}
	return uint64(n)
}

func (in *reader) fail(why string) {
	if in.err == nil {
		in.err = errors.New(why)
	}
}

// rowRecord is the record of one row of the rows form.
type rowRecord struct {
	V     int    `json:"v"`
	Table string `json:"table"`
	// Birth is the table's: a row of a former table of that name is found.
	Birth string `json:"birth"`
	Row
}

// Valid checks the row's invariants, and that it says whose it is.
func (r *rowRecord) Valid() error {
	if r.V < 1 || r.V > record.Level {
		return fmt.Errorf("format level %d", r.V)
	}
	if !record.IsID(r.Birth) {
		return fmt.Errorf("the birth %q is not an id", r.Birth)
	}
	return errors.Join(store.CheckName("table", r.Table), r.Row.Valid())
}

// RowName is what a row's record is named after: its first slot, five digits, so that names
// are ordered as rows are.
func RowName(first uint16) string { return fmt.Sprintf("%05d", first) }

// EncodeRow returns the canonical bytes of r's own record in t, a table of the rows form.
func (t *Table) EncodeRow(r *Row) ([]byte, error) {
	return record.Encode(&rowRecord{V: t.V, Table: t.Name, Birth: t.Birth, Row: *r}, MaxRow)
}

// DecodeRow reads the record of the row that begins with the slot first strictly (ST7). A
// row of another table, or of one that was made before this one, is ErrCorrupt.
func (t *Table) DecodeRow(key string, first uint16, body []byte) (Row, error) {
	var r rowRecord
	if err := record.Decode(key, body, &r); err != nil {
		return Row{}, err
	}
	bad := func(format string, args ...any) (Row, error) {
		return Row{}, store.Errorf(store.ErrCorrupt, "", "decode", key, format, args...)
	}
	switch {
	case r.Table != t.Name:
		return bad("the row says it is of table %q, not %q", r.Table, t.Name)
	case r.Birth != t.Birth:
		return bad("the row is of a table born as %s, this one was born as %s: a table was made anew over what an old one left", r.Birth, t.Birth)
	case r.Range.A != first:
		return bad("the row says it begins with slot %d, not %d", r.Range.A, first)
	}
	return r.Row, nil
}
