// Package sim is where Tenure's promises are tried against a whole world.
package sim
