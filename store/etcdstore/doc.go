// Package etcdstore is filled in soon.
package etcdstore
