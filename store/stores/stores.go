// Package stores names every driver, for programs that open any URL.
package stores
