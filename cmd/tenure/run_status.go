package main

import (
	"encoding/json"
	"os"
	"path/filepath"

	"github.com/tenure-project/tenure/internal/proc"
	"github.com/tenure-project/tenure/store"
)

// runStatus is the content of --status-file: it tells a code of the command's
// own from one of ours.
type runStatus struct {
	Schema int    `json:"schema"`
	Lease  string `json:"lease"`
	Token  uint64 `json:"token,omitempty"`
	Owner  string `json:"owner,omitempty"`
	// End is not-started, exited, lost, interrupted, wrapper-gone or
	// supervisor-gone.
	End string `json:"end"`
	// Code is what tenure exits with, CommandCode what the command exited with.
	Code        int      `json:"code"`
	CommandCode int      `json:"command_code"`
	Signal      int      `json:"signal,omitempty"`
	Reason      string   `json:"reason,omitempty"`
	Survivors   []string `json:"survivors,omitempty"`
}

// writeStatus replaces the status file as a whole, if one was asked for.
func (r *running) writeStatus(st runStatus) error {
	if r.statusFile == "" {
		return nil
	}
	st.Schema, st.Lease = 1, r.lease
	body, err := json.Marshal(st)
	if err != nil {
		return err
	}
	fresh, err := os.CreateTemp(filepath.Dir(r.statusFile), ".tenure-status-*")
	if err != nil {
		return store.Wrap(store.ErrInvalid, "", "write status file", r.statusFile, err)
	}
	_, err = fresh.Write(append(body, '\n'))
	if closeErr := fresh.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(fresh.Name(), r.statusFile)
	}
	if err != nil {
		_ = os.Remove(fresh.Name())
		return store.Wrap(store.ErrInvalid, "", "write status file", r.statusFile, err)
	}
	return nil
}

func texts(survivors []proc.Survivor) []string {
	var out []string
	for _, s := range survivors {
		out = append(out, s.String())
	}
	return out
}

func joinLines(a, b string) string {
	if a == "" {
		return b
	}
	return a + "\n" + b
}
