// Package authority gives one named authority one leader at a time, and an
// ordered, fenced log of that leader's decisions (LA).
//
// A process joins as a node ([tenure.Join]), opens the authority with its session
// ([Open]) and campaigns for it ([Authority.Lead], [Authority.Run]). While it
// leads it appends decisions ([Authority.Append]); the store itself refuses a
// decision of a leader that was superseded, whatever was delayed on the way. Any
// process reads ([Read]): who leads, what stands, and whether all of it is sound
// ([Reader.Audit]).
//
// The packages below this one are the chains of decisions that ship with it:
// checkpoints, assignments, recovery rounds and the catalog. Each is a set of rules
// and a thin client.
//
// All times in this package that decide anything are read from the client's clock;
// wall-clock times inform people.
package authority
