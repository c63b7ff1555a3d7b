// Package flock locks open files between processes, on the systems where such a lock ends
// with its process however that ends.
package flock
