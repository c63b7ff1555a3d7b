package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
)

// logHandler prints what the library tells in the form of everything else that
// the program says: lines that begin with "tenure:", safe for a terminal.
type logHandler struct {
	w     io.Writer
	mu    *sync.Mutex // over writes to w
	least slog.Level
	most  slog.Level // what is graver is not printed
	attrs []slog.Attr
}

// aboveAll lets every level through as logHandler.most.
const aboveAll = slog.Level(127)

func (h *logHandler) Enabled(_ context.Context, l slog.Level) bool {
	return l >= h.least && l <= h.most
}

// Handle prints one line. The error, if there is one, comes last.
func (h *logHandler) Handle(_ context.Context, r slog.Record) error {
	var about []string
	cause := ""
	add := func(a slog.Attr) bool {
		if a.Key == "error" || a.Key == "cause" {
			if a.Value.Any() == nil {
				return true
			}
			cause = ": " + valueText(a.Value)
		} else {
			about = append(about, fmt.Sprintf("%s %v", a.Key, a.Value))
		}
		return true
	}
	for _, a := range h.attrs {
		add(a)
	}
	r.Attrs(add)
	text := r.Message
	if len(about) > 0 {
		text += " (" + strings.Join(about, ", ") + ")"
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	_, err := fmt.Fprintf(h.w, "tenure: %s: %s %s\n", levelName(r.Level), r.Time.UTC().Format("2006-01-02T15:04:05.000Z"), printable(text)+cause)
	return err
}

func (h *logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	more := *h
	more.attrs = append(h.attrs[:len(h.attrs):len(h.attrs)], attrs...)
	return &more
}

// WithGroup is not used by the library: names stay as they are.
func (h *logHandler) WithGroup(string) slog.Handler { return h }

// valueText is v, safe for a terminal.
func valueText(v slog.Value) string {
	if err, ok := v.Any().(error); ok {
		return errorText(err)
	}
	return printable(v.String())
}

func levelName(l slog.Level) string {
	switch {
	case l >= slog.LevelError:
		return "error"
	case l >= slog.LevelWarn:
		return "warning"
	}
	return "info"
}
