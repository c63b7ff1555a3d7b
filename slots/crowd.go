package slots

import (
	"time"

	core "github.com/tenure-project/tenure/internal/core/slots"
)

// What a host does about others that renew in the same register. Each of them writes the one
// record once in a renew interval, so that what it wrote last is not what stands there: it
// reads first, and each time it comes a little early, so that they do not stay in step.

// crowdIs notes whether others write the register.
func (h *Host) crowdIs(crowd bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.crowd = crowd && h.form == core.RegisterForm && h.session == nil
}

func (h *Host) crowded() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.crowd
}

// renewing counts the hosts that renew in t, this one among them.
func (h *Host) renewing(t *core.Table) int {
	hosts := map[string]bool{h.me.Incarnation: true}
	for i := range t.Rows {
		if r := t.Rows[i].Host; r != nil && r.Kind == Self {
			hosts[r.Incarnation] = true
		}
	}
	return len(hosts)
}

// fits refuses to claim in a register that so many hosts renew in that the store does not
// take it (SL5).
func (h *Host) fits(t *core.Table) error {
	if h.form != core.RegisterForm || h.session != nil {
		return nil
	}
	return h.fitsRate(h.cfg, h.renewing(t))
}

// measure warns once if the hosts that renew in the register are more than it bears: from
// the reading of before until the write over it was confirmed nobody else's may come, and
// beyond half of a renew interval for all of them most have to be made again (SL5).
func (h *Host) measure(before look) {
	took := h.boot() - before.at
	if !h.crowded() {
		return
	}
	hosts := h.renewing(before.table)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.told || 2*int64(took)*int64(hosts) <= int64(h.every) {
		return
	}
	h.told = true
	h.log.Warn("slots: more hosts renew in one record than the store bears, ranges may lapse: give HostConfig.Session, or a longer TTL",
		"table", h.name, "host", h.me.Owner, "hosts", hosts, "a write takes", took, "ttl", h.ttl, "ttl needed", 8*took*time.Duration(hosts))
}
