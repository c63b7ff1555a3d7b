package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tenure-project/tenure/store"
)

// leaseName is the lease that a command names: its argument, else the one that
// the command runs under.
func (a *app) leaseName(cmd *cobra.Command, args []string) (string, error) {
	name := a.env.get(envLease)
	if len(args) > 0 {
		name = args[0]
	} else if name == "" {
		return "", &usageError{err: fmt.Errorf("NAME is missing, and %s is not set", envLease), path: cmd.CommandPath()}
	}
	return name, store.CheckName("lease name", name)
}

// proof completes token and owner from the environment, where the command runs
// under exactly the lease that it names: a token is worth nothing for another
// lease, another namespace or another store.
func (a *app) proof(cmd *cobra.Command, name string, token *uint64, owner *string) error {
	own, err := a.underLease(name)
	if err != nil {
		return err
	}
	if own && *token == 0 {
		if *token, err = parseNumber(a.env.get(envToken)); err != nil {
			return invalid("%s: %v", envToken, err)
		}
	}
	if own && owner != nil && *owner == "" {
		*owner = a.env.get(envOwner)
	}
	var missing string
	switch {
	case *token == 0:
		missing = "--token"
	case owner != nil && *owner == "":
		missing = "--owner"
	default:
		return nil
	}
	return &usageError{err: fmt.Errorf("%s is missing (the environment's is taken only by a command that runs under the lease %q)", missing, name), path: cmd.CommandPath()}
}

// underLease reports whether this process runs under the lease name of the very
// store and namespace that the command works on.
func (a *app) underLease(name string) (bool, error) { return a.under(envLease, name) }

// under reports whether variable, which a command under a lease or a leadership
// finds, names name of the very store and namespace that the command works on.
func (a *app) under(variable, name string) (bool, error) {
	if a.env.get(variable) != name || a.env.get(envToken) == "" {
		return false, nil
	}
	if f := a.flags.store; f != "" && f != a.env.get(envStore) {
		// The same place may be spelled in more than one way.
		flag, _, err := handedStore(f)
		own, _, ownErr := handedStore(a.env.get(envStore))
		if err != nil || ownErr != nil || flag != own {
			return false, nil
		}
	}
	namespace, err := a.namespace()
	return namespace == firstOf(a.env.get(envNamespace), "default"), err
}
