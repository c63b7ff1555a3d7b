// Package s3store keeps records in a bucket of Amazon S3, or of a relative that
// honours conditional writes.
//
// [Open] and [Driver] find credentials as every AWS program does; [New] takes a
// client that is already configured. docs/stores/s3.md says what the bucket
// needs, what it costs and where its traps are.
//
// A record is an object, and its version is the object's ETag, byte for byte as
// S3 sent it. Every write is one PutObject with If-None-Match: * or If-Match.
// Nothing is sent twice: an answer that leaves open whether the write took
// effect is store.ErrUnknown, and the layer above settles it (ST9).
package s3store
