//go:build !unix

package main

// openToOthers reports whether anybody but this user may write to dir. Here the
// folder lies in the user's profile, which the system keeps private.
func openToOthers(string) (open bool, how string) { return false, "" }
