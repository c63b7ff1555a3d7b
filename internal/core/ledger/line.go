package ledger

import (
	"bytes"
	"fmt"
	"hash/crc32"

	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/store"
)

// castagnoli finds what a torn or flipped line in a file looks like. It proves
// nothing against somebody who wants to deceive.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sumLen is the length of a line's checksum in hex.
const sumLen = 8

// AppendLine appends i as one line of a log file: eight hex digits of CRC-32C of
// the JSON, a space, the JSON, a line feed. Nothing is acknowledged before the
// line feed is durable.
func AppendLine(log []byte, i *Intent) ([]byte, error) {
	body, err := i.Encode()
	if err != nil {
		return log, err
	}
	return appendSum(log, body), nil
}

// AppendFolded is AppendLine of one of Agent.Intents, which may be what malformed lines
// left: merging and importing a log keep the same.
func AppendFolded(log []byte, i *Intent) ([]byte, error) {
	if i.Valid() == nil {
		return AppendLine(log, i)
	}
	body, err := record.Encode(placed{i}, MaxIntent)
	if err != nil {
		return log, err
	}
	return appendSum(log, body), nil
}

func appendSum(log, body []byte) []byte {
	log = fmt.Appendf(log, "%08x ", crc32.Checksum(body, castagnoli))
	log = append(log, body...)
	return append(log, '\n')
}

// Read tells what a log file held.
type Read struct {
	// Lines is how many whole lines there were.
	Lines int
	// Malformed is how many of them were whole and yet no valid intents; each went
	// where EX3 puts it.
	Malformed int
	// Good is how many bytes the whole lines have: where the next line belongs.
	Good int
	// Torn reports a last line without its end: a crash tore it, and nobody was
	// told that it was written. Cut the file to Good before the next line.
	Torn bool
}

// ReadLog calls take with each intent of a log file, in order. name is for
// messages. A damaged line anywhere is ErrCorrupt, for a lost commit could become a
// repeat; a line of a newer level is ErrNewer. What was taken before is true
// anyway.
func ReadLog(name string, log []byte, take func(Intent)) (Read, error) {
	var r Read
	for len(log) > r.Good {
		line, _, whole := bytes.Cut(log[r.Good:], []byte("\n"))
		if !whole {
			r.Torn = true
			return r, nil
		}
		body, err := checked(line)
		if err != nil {
			return r, store.Errorf(store.ErrCorrupt, "", "read log", name,
				"line %d, byte %d: %v; take the file from a copy, or what follows is lost", r.Lines+1, r.Good, err)
		}
		i, clean, err := Lenient(body)
		if err != nil {
			return r, err
		}
		if !clean {
			r.Malformed++
		}
		take(i)
		r.Lines++
		r.Good += len(line) + 1
	}
	return r, nil
}

// checked is the line's JSON, if its checksum is right.
func checked(line []byte) ([]byte, error) {
	if len(line) <= sumLen || line[sumLen] != ' ' || len(line) > sumLen+1+MaxIntent {
		return nil, fmt.Errorf("it has no checksum or %d bytes", len(line))
	}
	body := line[sumLen+1:]
	if sum := fmt.Sprintf("%08x", crc32.Checksum(body, castagnoli)); sum != string(line[:sumLen]) {
		return nil, fmt.Errorf("its checksum is %q, its bytes say %s", line[:sumLen], sum)
	}
	return body, nil
}
