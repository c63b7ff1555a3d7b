package world

import (
	"errors"
	"fmt"
	"slices"

	"github.com/tenure-project/tenure/internal/core/lease"
)

// step is what one write did to a lease record.
type step string

// The legal steps.
const (
	granted  step = "granted"
	tookOver step = "took over"
	renewed  step = "renewed"
	jumped   step = "jumped"
	endedBy  step = "ended"
)

// stepOf says which step leads from prev (nil: absent) to next, or why none
// does (R3). It knows nothing of who wrote and when.
func stepOf(prev, next *lease.Record) (step, error) {
	switch {
	case next.Token > next.Counter:
		return "", fmt.Errorf("the token %d is above the counter %d", next.Token, next.Counter)
	case prev == nil:
		return granted, checkGrant(0, next)
	case next.Counter < prev.Counter:
		return "", fmt.Errorf("the counter fell from %d to %d", prev.Counter, next.Counter)
	case next.Token < prev.Token:
		return "", fmt.Errorf("the token fell from %d to %d", prev.Token, next.Token)
	case prev.Held() && next.Held() && next.SameOwner(*prev.Owner, prev.Token):
		return checkKept(prev, next)
	case prev.Held() && next.Held():
		return tookOver, errors.Join(checkGrant(prev.Counter, next), checkPast(prev, next, falls(prev.Kind)...))
	case next.Held():
		return granted, checkGrant(prev.Counter, next)
	case prev.Held():
		return endedBy, checkEnd(prev, next)
	}
	return jumped, checkFreeJump(prev, next)
}

// checkGrant wants a new owner with a token of its own.
func checkGrant(counter uint64, next *lease.Record) error {
	switch {
	case !next.Held():
		return errors.New("a record begins free")
	case next.Token <= counter:
		return fmt.Errorf("a grant with token %d although the counter was %d", next.Token, counter)
	case next.Counter != next.Token || next.Renewal != 0:
		return fmt.Errorf("a grant with token %d, counter %d, renewal %d", next.Token, next.Counter, next.Renewal)
	case next.HolderAttempt != next.WriterAttempt:
		return errors.New("a grant that its holder did not write")
	}
	return nil
}

// checkKept wants a renewal by the holder or a raise of the counter. A session's
// lease is renewed only to drop what is archived.
func checkKept(prev, next *lease.Record) (step, error) {
	switch {
	case next.TTLMS != prev.TTLMS || next.Since != prev.Since || next.Note != prev.Note:
		return "", errors.New("a tenure changed what is fixed for it")
	case (prev.Kind == lease.Self || len(next.Recent) < len(prev.Recent)) && next.Renewal == prev.Renewal+1 && next.HolderAttempt == next.WriterAttempt && next.HolderAttempt != prev.HolderAttempt && next.Counter == prev.Counter:
		return renewed, nil
	case next.Renewal == prev.Renewal && next.HolderAttempt == prev.HolderAttempt && next.WriterAttempt != prev.WriterAttempt && next.Counter > prev.Counter:
		return jumped, nil
	}
	return "", fmt.Errorf("neither a renewal nor a jump: renewal %d to %d, counter %d to %d", prev.Renewal, next.Renewal, prev.Counter, next.Counter)
}

// falls is how a held lease may fall to the next holder: a session's also by how
// the session itself ended (LS8).
func falls(k lease.Kind) []string {
	hows := []string{lease.HowObserved, lease.HowProven, lease.HowStoreClock}
	if k == lease.Session {
		hows = append(hows, lease.HowReleased, lease.HowForced, lease.HowVouched)
	}
	return hows
}

// forcedAs is what the theft of a lease is called (LS11).
func forcedAs(k lease.Kind) string {
	if k == lease.Session {
		return lease.HowRevoked
	}
	return lease.HowForced
}

func checkEnd(prev, next *lease.Record) error {
	rise := next.Counter - prev.Counter
	switch how := next.Ended.How; {
	case next.Token != prev.Token:
		return fmt.Errorf("the end of token %d left token %d", prev.Token, next.Token)
	case how == lease.HowReleased && rise != 0, how != lease.HowReleased && rise != 1:
		return fmt.Errorf("a tenure %s raised the counter by %d", how, rise)
	case how != lease.HowReleased && how != lease.HowVouched && how != forcedAs(prev.Kind):
		return fmt.Errorf("a tenure of kind %s ended by %q", prev.Kind, how)
	case how == forcedAs(prev.Kind) && next.Ended.SupersededTTLMS != prev.TTLMS:
		return fmt.Errorf("a forced end of a TTL of %d ms names %d ms", prev.TTLMS, next.Ended.SupersededTTLMS)
	}
	return checkPast(prev, next, next.Ended.How)
}

func checkFreeJump(prev, next *lease.Record) error {
	if next.Counter <= prev.Counter || next.Token != prev.Token || *next.Ended != *prev.Ended || next.Successor != prev.Successor {
		return errors.New("a released record changed although nobody took it and its counter did not rise")
	}
	return nil
}

// checkPast wants prev's tenure as the newest past one.
func checkPast(prev, next *lease.Record, hows ...string) error {
	n := len(next.Recent)
	if n == 0 {
		return errors.New("a tenure ended and the history does not say so")
	}
	t := next.Recent[n-1]
	if t.Token != prev.Token || t.Owner != *prev.Owner || !slices.Contains(hows, t.How) {
		return fmt.Errorf("the newest past tenure is token %d, %s; want %d", t.Token, t.How, prev.Token)
	}
	return nil
}

// missing are the past tenures that next carries no more although prev did, or
// although prev's own ended by this step. What remains must be in order (R9).
func missing(prev, next *lease.Record) ([]lease.Tenure, error) {
	var want []lease.Tenure
	if prev != nil {
		want = slices.Clone(prev.Recent)
		if n := len(next.Recent); prev.Held() && n > 0 && !(next.Held() && next.SameOwner(*prev.Owner, prev.Token)) {
			want = append(want, next.Recent[n-1])
		}
	}
	cut := len(want) - len(next.Recent)
	if cut < 0 || !slices.Equal(want[cut:], next.Recent) {
		return nil, errors.New("the history is not what it was, less its oldest part")
	}
	return want[:cut], nil
}
