package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/tenure-project/tenure/internal/proc"
	"github.com/tenure-project/tenure/store"
)

// endSupervisorGone is the one end that package proc does not report: the
// wrapper had to end the run itself.
const endSupervisorGone = "supervisor-gone"

// runStatus is the content of --status-file: it tells a code of the command's
// own from one of ours.
type runStatus struct {
	Schema    int    `json:"schema"`
	Namespace string `json:"namespace"`
	Lease     string `json:"lease"`
	Token     uint64 `json:"token"`
	Owner     string `json:"owner"`
	// End is not-started, exited, lost, interrupted, wrapper-gone or
	// supervisor-gone.
	End string `json:"end"`
	// Code is what tenure exits with, CommandCode what the command exited with,
	// null where there was none.
	Code        int      `json:"code"`
	CommandCode *int     `json:"command_code"`
	Signal      int      `json:"signal"`
	Reason      string   `json:"reason"`
	Survivors   []string `json:"survivors"`
	// Node and Term are of the session that kept the lease: "" and 0 without one.
	Node string `json:"node"`
	Term uint64 `json:"term"`
	// Authority is what was led: "" for a lease, as Lease is for a leadership.
	Authority string `json:"authority"`
	// Job, Run and Attempt say what `once` was at, Outcome what it found or did; "" and 0
	// for others.
	Job     string `json:"job"`
	Run     string `json:"run"`
	Attempt uint64 `json:"attempt"`
	Outcome string `json:"outcome"`
	// Table and Slots are what `slots claim` owned.
	Table string        `json:"table"`
	Slots []claimedJSON `json:"slots"`
}

// bequest is what the wrapper has to know of a hold if it has to act in the place of
// the supervisor, which holds it.
type bequest struct {
	left string // what becomes of the hold then, in words; "" for what becomes of most
	note string // for the status file
}

func (r *running) bequest(l holding) bequest {
	p := l.Proof()
	st := runStatus{Token: p.Token, Owner: l.Owner(), Node: p.Node, Term: p.Term}
	r.mark(&st)
	note, err := json.Marshal(st)
	if err != nil {
		return bequest{}
	}
	b := bequest{note: string(note)}
	if p.Node != "" && r.authority == "" {
		b.left = fmt.Sprintf("the agent of node %s frees the lease once that is certain, or when the command's time is over", showName(p.Node))
	}
	return b
}

func (r *running) mark(st *runStatus) {
	if r.marks != nil {
		r.marks(st)
	}
}

// inherit takes over what the supervisor had written down.
func (st *runStatus) inherit(note string) {
	var known runStatus
	if json.Unmarshal([]byte(note), &known) == nil {
		st.Token, st.Owner, st.Node, st.Term = known.Token, known.Owner, known.Node, known.Term
		st.Run, st.Attempt, st.Outcome = known.Run, known.Attempt, known.Outcome
		st.Slots = known.Slots
	}
}

// told writes the status file for a run that failed before it began, so that
// what stands there from an earlier run is not taken for this one's.
func (r *running) told(err error) error {
	if err != nil {
		_ = r.writeStatus(runStatus{End: string(proc.NotStarted), Code: exitCode(err), Reason: plain(err.Error())})
	}
	return err
}

// checkStatusFile finds out before anything happens whether the file can be
// written in the end.
func (r *running) checkStatusFile() error {
	if r.statusFile == "" {
		return nil
	}
	path, err := statusPath(r.statusFile)
	if err != nil {
		return err
	}
	fresh, err := freshBeside(path)
	if err != nil {
		return err
	}
	return errors.Join(fresh.Close(), os.Remove(fresh.Name()))
}

// writeStatus replaces the status file as a whole, if one was asked for.
func (r *running) writeStatus(st runStatus) error {
	if r.statusFile == "" {
		return nil
	}
	st.Schema, st.Namespace, st.Lease, st.Authority = schema, r.t.namespace, r.lease, r.authority
	r.mark(&st)
	if st.Survivors == nil {
		st.Survivors = []string{}
	}
	if st.Slots == nil {
		st.Slots = []claimedJSON{}
	}
	body, err := json.Marshal(st)
	if err != nil {
		return err
	}
	path, err := statusPath(r.statusFile)
	if err != nil {
		return err
	}
	fresh, err := freshBeside(path)
	if err != nil {
		return err
	}
	_, err = fresh.Write(append(body, '\n'))
	if closeErr := fresh.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(fresh.Name(), path)
	}
	if err != nil {
		_ = os.Remove(fresh.Name())
		return statusFileError(path, err)
	}
	return nil
}

// statusPath is the file that name leads to. Anything but a file is refused:
// replacing a device or a pipe would harm others.
func statusPath(name string) (string, error) {
	path, err := filepath.EvalSymlinks(name)
	if errors.Is(err, os.ErrNotExist) {
		return name, nil
	}
	if err != nil {
		return "", statusFileError(name, err)
	}
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return "", statusFileError(name, errors.Join(errors.New("it is there, but is no regular file"), err))
	}
	return path, nil
}

// freshBeside makes an empty file that can be renamed to path.
func freshBeside(path string) (*os.File, error) {
	fresh, err := os.CreateTemp(filepath.Dir(path), ".tenure-status-*")
	if err != nil {
		return nil, statusFileError(path, err)
	}
	return fresh, nil
}

func statusFileError(path string, err error) error {
	return store.Wrap(store.ErrInvalid, "", "write status file", path, err)
}

func texts(survivors []proc.Survivor) []string {
	var out []string
	for _, s := range survivors {
		out = append(out, s.String())
	}
	return out
}

// plain is a message as a program reads it: without the program's own name.
func plain(text string) string { return strings.TrimPrefix(text, "tenure: ") }

func joinLines(a, b string) string {
	if a == "" {
		return b
	}
	return a + "\n" + b
}
