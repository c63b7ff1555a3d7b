// Package proc runs a command under a hold that can end, and ends the whole
// process tree of the command before the hold does (SPEC UI1, LS6, LS14, DL5).
//
// It knows nothing of leases: a [Hold] says until when the command may run.
//
// # Three processes
//
//	W, the wrapper     what the shell started. It mirrors the job: signals,
//	                   stops and the exit status.
//	S, the supervisor  the same program again. It takes the hold, starts the
//	                   command, owns its tree and ends it.
//	C, the command     stands in W's process group, so that the terminal treats
//	                   it as if the wrapper were not there.
//
// W and S watch each other over a socket pair. S ends the tree when the hold
// ends or W dies. W ends the tree when S dies, or does not answer when the
// tree should have begun to end. [Main] plays whichever part this process has.
//
// # What no program can do
//
// If W and S are both stopped or both killed, nobody is left to act: then only
// C itself dies (Linux: by its parent-death signal). A process in
// uninterruptible sleep, or of a user whom we may not signal, can outlive the
// hold; [Result].Survivors names it. What other platforms cannot do is in
// docs/design/0003-process-tree.md. Against what is left, a guard at the
// resource helps.
package proc
