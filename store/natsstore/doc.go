// Package natsstore is filled in soon.
package natsstore
