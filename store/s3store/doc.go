// Package s3store is filled in soon.
package s3store
