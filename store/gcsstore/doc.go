// Package gcsstore keeps records as objects in a bucket of Google Cloud
// Storage. docs/stores/gcs.md says what that needs, what it costs and where its
// traps are.
//
// A record is an object, its version the object's generation. Every write is
// one upload in one request with the condition ifGenerationMatch, which Cloud
// Storage decides atomically: 0 for Create, the generation read for Replace
// (ST1, ST2). Generations of a name never come back, not even after a delete
// (ST4).
//
// A call sends one request and no more. The client library's repeats are
// switched off, and a second request of one call is refused below the library,
// before it reaches the network (ST9). Two kinds of answers need a second look:
// Cloud Storage refuses a Replace of an absent object in the same words as a
// stale one, and an answer of 404 may mean the bucket. The look is a read, and
// what it finds is the answer.
package gcsstore
