// Package azurestore is filled in soon.
package azurestore
