package main

import (
	"strings"
)

// The environment variables that the program reads, and that a command under a
// lease finds.
const (
	envStore     = "TENURE_STORE"
	envNamespace = "TENURE_NAMESPACE"
	envLease     = "TENURE_LEASE"
	envToken     = "TENURE_TOKEN"
	envOwner     = "TENURE_OWNER"
	envLeader    = "TENURE_LEADER" // the authority that a command leads
)

// environment is the process's environment, as an argument.
type environment struct {
	list []string
	vars map[string]string
}

func newEnvironment(list []string) environment {
	e := environment{list: list, vars: make(map[string]string, len(list))}
	for _, kv := range list {
		if i := strings.IndexByte(kv, '='); i > 0 { // Windows has names that begin with "="
			e.vars[kv[:i]] = kv[i+1:]
		}
	}
	return e
}

// get is a variable's value, "" if it is not set.
func (e environment) get(name string) string { return e.vars[name] }

// with is the environment for a child: this one with the variables of pairs
// (name, value, name, value...) set.
func (e environment) with(pairs ...string) []string {
	set := map[string]string{}
	for i := 0; i+1 < len(pairs); i += 2 {
		set[pairs[i]] = pairs[i+1]
	}
	var out []string
	for _, kv := range e.list {
		name, _, _ := strings.Cut(kv, "=")
		if _, replaced := set[name]; !replaced {
			out = append(out, kv)
		}
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		out = append(out, pairs[i]+"="+pairs[i+1])
	}
	return out
}
