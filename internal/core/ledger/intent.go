package ledger

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/store"
)

// Status is what an intent says of its attempt (EX3).
type Status string

// The statuses of an intent.
const (
	// Pending: the attempt was admitted. Its effect may have begun.
	Pending Status = "pending"
	// Committed: the effect happened. A fact at any epoch, for ever.
	Committed Status = "committed"
	// Failed: the attempt is over without a commit; the run may be tried again.
	Failed Status = "failed"
	// Abandoned: somebody gave an attempt of unknown outcome up.
	Abandoned Status = "abandoned"
	// Raised speaks of no attempt: a holder raised the epoch before its first read.
	Raised Status = "raised"
)

// Intent is one line of a log (EX3). Times are unix milliseconds by the writer's
// wall clock: for people, never for decisions.
type Intent struct {
	V     int    `json:"v"`
	Agent string `json:"agent"`
	Key
	// Holder wrote it: the lease's holder, or whoever settled or abandoned.
	Holder string `json:"holder"`
	// Epoch is Holder's; 0 for an operator without a lease.
	Epoch  uint64 `json:"epoch"`
	Status Status `json:"status"`
	// NotStarted is of a failed attempt whose effect certainly did not begin.
	NotStarted bool `json:"not_started,omitempty"`
	// Birth is of the ledger whose epoch was raised.
	Birth string `json:"birth,omitempty"`
	Detail
}

// Detail is what a person who settles an attempt wants to know of it.
type Detail struct {
	// Write is the id of the write that admitted the attempt.
	Write string `json:"write,omitempty"`
	// Trigger and At say which occurrence it is of.
	Trigger string `json:"trigger,omitempty"`
	At      int64  `json:"at_ms,omitempty"`
	// Since is when the attempt was admitted.
	Since int64 `json:"since_ms,omitempty"`
	// Until is when its holder ends it by itself, if it has a time limit.
	Until int64 `json:"until_ms,omitempty"`
}

// Valid checks an intent as it is written; what is read may be less (Lenient).
func (i *Intent) Valid() error {
	if i.V < 1 || i.V > record.Level {
		return fmt.Errorf("format level %d", i.V)
	}
	if err := store.CheckName("job name", i.Agent); err != nil {
		return err
	}
	if err := store.CheckName("site", i.Site); err != nil {
		return err
	}
	if err := checkText("holder", i.Holder); err != nil {
		return err
	}
	switch i.Status {
	case Raised:
		if i.Run != (RunID{}) || i.Attempt != 0 || i.NotStarted || i.Detail != (Detail{}) {
			return errors.New("an intent that raises the epoch speaks of an attempt")
		}
	case Pending, Committed, Failed, Abandoned:
		if i.Attempt < 1 || i.Attempt > MaxAttempt {
			return fmt.Errorf("attempt %d is out of bounds", i.Attempt)
		}
	default:
		return fmt.Errorf("unknown status %q", i.Status)
	}
	switch {
	case i.Epoch > record.MaxNumber:
		return fmt.Errorf("epoch %d is out of bounds", i.Epoch)
	case i.NotStarted && i.Status != Failed:
		return errors.New("only a failed attempt did not start")
	case i.Birth != "" && (i.Status != Raised || !record.IsID(i.Birth)):
		return fmt.Errorf("the birth %q is not an id, or of an attempt", i.Birth)
	case i.Status != Pending && i.Detail != (Detail{}):
		return errors.New("only a pending intent has details")
	}
	return i.Detail.valid()
}

func (d Detail) valid() error {
	switch {
	case d.Write != "" && !record.IsID(d.Write):
		return fmt.Errorf("the write %q is not an id", d.Write)
	case !isTime(d.At) || !isTime(d.Since) || !isTime(d.Until):
		return errors.New("a time is out of bounds")
	}
	return checkLabel("trigger", d.Trigger)
}

// Encode returns the intent's canonical bytes.
func (i *Intent) Encode() ([]byte, error) { return record.Encode(i, MaxIntent) }

// placed is an intent that malformed lines left in a state: what normalise made of them.
// It is written as it is, since what it says counts in every fold (EX3); whoever reads
// it finds it malformed again, and gives it the same place.
type placed struct{ *Intent }

// Valid checks that normalise leaves it as it is.
func (p placed) Valid() error {
	i := *p.Intent
	if i.normalise(&known{}); i != *p.Intent {
		return errors.New("the intent is not what a fold makes of it")
	}
	return nil
}

// Lenient reads an intent that somebody else wrote (EX3): it never fails and
// never promotes. What cannot be read as an epoch or attempt is 0, as an agent or
// site "", as a status pending; a body that is no object is all of that. clean
// reports whether every byte was as expected. A newer level is ErrNewer: then the
// log must not be read with this program at all.
func Lenient(body []byte) (i Intent, clean bool, err error) {
	err = record.Decode("", body, &i)
	if err == nil {
		return i, true, nil
	}
	if errors.Is(err, store.ErrNewer) {
		return Intent{}, false, err
	}
	// Field names are matched exactly and the last of a doubled field counts.
	var fields map[string]json.RawMessage
	if !bytes.HasPrefix(body, []byte("{")) || json.Unmarshal(body, &fields) != nil {
		fields = nil
	}
	i = Intent{V: 1, Agent: text(fields["agent"]), Holder: text(fields["holder"]), Epoch: number(fields["epoch"]),
		Status: Status(text(fields["status"]))}
	i.Site, i.Attempt = text(fields["site"]), number(fields["attempt"])
	if i.Run.UnmarshalText([]byte(text(fields["run"]))) != nil {
		i.Run = RunID{}
	}
	i.NotStarted = string(fields["not_started"]) == "true"
	i.Birth = text(fields["birth"])
	i.Detail = Detail{Write: text(fields["write"]), Trigger: text(fields["trigger"]),
		At: int64(number(fields["at_ms"])), Since: int64(number(fields["since_ms"])), Until: int64(number(fields["until_ms"]))}
	i.normalise(&known{})
	return i, false, nil
}

// text is a JSON string, or "" where bytes that are not UTF-8 would be replaced:
// two names must never become one.
func text(raw json.RawMessage) string {
	var s string
	if len(raw) == 0 || raw[0] != '"' || json.Unmarshal(raw, &s) != nil || strings.ContainsRune(s, utf8.RuneError) {
		return ""
	}
	return s
}

func number(raw json.RawMessage) uint64 {
	var n uint64
	if json.Unmarshal(raw, &n) != nil || n > record.MaxNumber {
		return 0
	}
	return n
}

// known remembers the last texts that were checked: a log repeats them.
type known struct{ agent, site, holder string }

// normalise gives every malformed field the place that EX3 names for it, so that
// the fold is total over intents from anywhere, also from a caller's mistake.
func (i *Intent) normalise(k *known) {
	if i.Agent != k.agent || i.Agent == "" {
		if store.CheckName("job name", i.Agent) != nil {
			i.Agent = ""
		}
		k.agent = i.Agent
	}
	if i.Site != k.site || i.Site == "" {
		if store.CheckName("site", i.Site) != nil {
			i.Site = ""
		}
		k.site = i.Site
	}
	if i.Holder != k.holder {
		if checkText("holder", i.Holder) != nil {
			i.Holder = ""
		}
		k.holder = i.Holder
	}
	if i.Epoch > record.MaxNumber {
		i.Epoch = 0
	}
	if i.Attempt > MaxAttempt {
		i.Attempt = 0
	}
	switch i.Status {
	case Committed, Failed, Abandoned, Raised:
		i.Detail = Detail{}
	default:
		i.Status = Pending
		if i.Detail.valid() != nil {
			i.Detail = Detail{}
		}
	}
	i.NotStarted = i.NotStarted && i.Status == Failed
	if i.Status != Raised || i.Agent == "" || i.Site == "" || !record.IsID(i.Birth) {
		i.Birth = "" // nobody is called ""
	}
}
