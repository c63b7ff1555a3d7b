package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tenure-project/tenure/slots"
	"github.com/tenure-project/tenure/store"
)

const (
	kvPath   = "/kv/"
	maxKey   = 256
	maxValue = 64 << 10
)

// keyOf is the key of a request's path; false if that is none of a key.
func keyOf(r *http.Request) (string, bool, error) {
	key, ok := strings.CutPrefix(r.URL.Path, kvPath)
	if ok && (key == "" || len(key) > maxKey || !utf8.ValidString(key)) {
		return "", false, fmt.Errorf("%.80q is no key: give 1 to %d bytes of UTF-8", key, maxKey)
	}
	return key, ok, nil
}

// slotOfRequest is where processes and clients agree on who serves a request.
func slotOfRequest(r *http.Request) (uint16, bool, error) {
	key, ok, err := keyOf(r)
	return slots.SlotOf(key), ok, err
}

// routes answers what this process may serve, and what is no key's.
func (n *node) routes() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		served, ok := slots.SlotFrom(r.Context())
		switch {
		case ok:
			n.serveKey(w, r, served)
		case r.Method == http.MethodGet && r.URL.Path == "/map":
			if err := n.router.Refresh(r.Context()); err != nil { // a person looks: what the table says now
				n.log.Warn("the table cannot be read, the map is older", "error", err)
			}
			answerJSON(w, http.StatusOK, n.router.Routes())
		default:
			answerJSON(w, http.StatusNotFound, failure{"there is nothing but /kv/KEY and /map"})
		}
	})
}

// failure is the body of an answer that is no success.
type failure struct {
	Error string `json:"error"`
}

// serveKey serves one request. What it says of a write:
//
//	204   it is done, durably
//	421   nothing was done, ask the owner
//	503   nothing was done, ask again
//	500   nobody knows; so does a client that gets no answer
func (n *node) serveKey(w http.ResponseWriter, r *http.Request, served slots.Served) {
	s := n.open[served.Slot].Load()
	if s == nil || s.grant.Epoch() != served.Epoch {
		n.later(w, errors.New("the shard was handed over"))
		return
	}
	key, _, _ := keyOf(r)
	w.Header().Set(slots.HeaderOwner, n.owner)
	w.Header().Set(slots.HeaderEpoch, strconv.FormatUint(served.Epoch, 10))
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		n.get(w, r, s, key)
	case http.MethodPut:
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxValue))
		value := string(body)
		if err == nil && !utf8.ValidString(value) {
			err = errors.New("it is not UTF-8")
		}
		if err != nil {
			answerJSON(w, http.StatusBadRequest, failure{fmt.Sprintf("the value cannot be taken: %v (give at most %d bytes of UTF-8)", err, maxValue)})
			return
		}
		n.set(w, r, s, key, &value)
	case http.MethodDelete:
		n.set(w, r, s, key, nil)
	default:
		w.Header().Set("Allow", "GET, HEAD, PUT, DELETE")
		answerJSON(w, http.StatusMethodNotAllowed, failure{"GET, HEAD, PUT and DELETE are served"})
	}
}

// get answers with a value. First it is read, and then it is asked whether it was this
// process's to say: the other way round, another one could have written in between.
// Without confirm that rests on this machine's clock, with it on the guard alone.
func (n *node) get(w http.ResponseWriter, r *http.Request, s *shard, key string) {
	value, ok := s.get(key)
	if confirm := r.URL.Query().Get("confirm"); confirm != "" && confirm != "0" {
		if err := s.confirm(); err != nil {
			tell(s.host, s.grant, err)
			n.later(w, err)
			return
		}
	} else if _, live := n.live(s.grant); !live {
		n.later(w, s.grant.Err())
		return
	}
	if !ok {
		answerJSON(w, http.StatusNotFound, failure{"there is no such key"})
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = io.WriteString(w, value)
}

// set writes, under the guard.
func (n *node) set(w http.ResponseWriter, r *http.Request, s *shard, key string, value *string) {
	err := s.set(r.Context(), key, value)
	switch {
	case err == nil:
		w.WriteHeader(http.StatusNoContent)
	case errors.Is(err, store.ErrUnknown):
		answerJSON(w, http.StatusInternalServerError, failure{"it may be done, or not: " + err.Error()})
	default:
		tell(s.host, s.grant, err)
		n.later(w, err)
	}
}

// later says that nothing was done, and that it is worth asking again.
func (n *node) later(w http.ResponseWriter, err error) {
	w.Header().Del(slots.HeaderOwner)
	w.Header().Del(slots.HeaderEpoch)
	w.Header().Set("Retry-After", "1")
	answerJSON(w, http.StatusServiceUnavailable, failure{fmt.Sprintf("not done: %v", err)})
}

func answerJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client may be gone
}
