package main

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"

	"github.com/tenure-project/tenure"
)

// calmLogger is log for a process that keeps many leases: of an outage of the store,
// which every one of them meets, only the first line is a warning, the others are
// for debugging. over says that the outage is over. So is how the session itself
// ended, which the process's last words tell.
func calmLogger(log *slog.Logger) (calm *slog.Logger, over func()) {
	told := new(atomic.Bool)
	return slog.New(&calmHandler{log.Handler(), told}), func() { told.Store(false) }
}

type calmHandler struct {
	slog.Handler
	told *atomic.Bool // of the present outage
}

// Handle prints r, unless that was told, or will be.
func (h *calmHandler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level == slog.LevelWarn && ofOutage(r) && h.told.Swap(true) || r.Level == slog.LevelError && ofSession(r) {
		r.Level = slog.LevelDebug
		if !h.Enabled(ctx, r.Level) {
			return nil
		}
	}
	return h.Handler.Handle(ctx, r)
}

func (h *calmHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &calmHandler{h.Handler.WithAttrs(attrs), h.told}
}

func (h *calmHandler) WithGroup(name string) slog.Handler {
	return &calmHandler{h.Handler.WithGroup(name), h.told}
}

// ofSession says whether r is of the session as a whole.
func ofSession(r slog.Record) bool {
	keys := map[string]bool{}
	r.Attrs(func(a slog.Attr) bool {
		keys[a.Key] = true
		return true
	})
	return keys["node"] && !keys["lease"] && !keys["panic"]
}

// ofOutage says whether r is of a store that does not answer.
func ofOutage(r slog.Record) (is bool) {
	r.Attrs(func(a slog.Attr) bool {
		if err, ok := a.Value.Any().(error); ok {
			is = is || errors.Is(err, tenure.ErrUnavailable) || errors.Is(err, tenure.ErrUnknown)
		}
		return true
	})
	return is
}
