// Package sqlstore keeps records in a SQL database.
package sqlstore
