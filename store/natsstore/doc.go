// Package natsstore keeps records in a NATS JetStream key-value bucket.
//
// A record is the last message of its subject, a version is that message's
// sequence, and every write is one publish that the server takes only if the
// subject's last sequence is the one named. docs/stores/nats.md says what that
// needs, what it costs and where its traps are.
//
// Three things follow from what a NATS client may never assume:
//
//   - A replica may lag, so nothing is read by direct get, and a bucket that
//     allows it is refused: tools and other programs would read it stale.
//   - A deposed leader may answer a while longer, to reads and with refusals. A
//     read of a replicated bucket therefore follows a small write that a
//     majority took after the read began, and a refusal counts only if the
//     state shows why: each message carries the id of its attempt.
//   - A message that waits in the client may be sent late, so nothing waits
//     there: what cannot be sent at once is not sent.
package natsstore
