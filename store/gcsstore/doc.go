// Package gcsstore is filled in soon.
package gcsstore
