// # Routing
//
// Any process can ask a [Router] who serves a key. It keeps the whole table in memory
// and answers from there, also while the store is away; [Router.Age] says how old its
// knowledge is. A route is where to ask first, never a right: only the host that
// answers EpochFor may serve, and only a resource that checks the epoch is protected.
//
// Over HTTP, [Serve] puts that question before a handler. A host that does not serve
// the slot answers 421 Misdirected Request with the owner's address, and 503 Service
// Unavailable if nobody is known to serve it, both before the request is begun.
// [Transport] is the client's side: it sends each request to the owner of its slot, and
// follows one 421, whatever the method. It repeats no 503: those also come from proxies
// and handlers, which may have begun.
//
// The headers, besides a JSON body that says the same (see [Refusal]):
//
//	Tenure-Slot            answer: the slot that was asked for, 0 to 16383
//	Tenure-Owner           answer 421: the owner's name
//	Tenure-Owner-Address   answer 421: where the owner can be reached
//	Tenure-Epoch           answer 421: the owner's epoch
//	                       request: the newest epoch of the slot that the client knows
//	Retry-After            answer 503: whole seconds, rounded up
//
// A request that knows an older epoch than the host's own is served: its client
// reached the right host with old knowledge. One that knows a newer epoch is not: this
// host was superseded and does not know it yet. It says so by 421 if it knows of an
// owner that is at least as new, by 503 if not. That the client's word is taken costs
// only the client.
//
// There is nothing here for gRPC. An interceptor can do the same with EpochFor and a
// Router: refuse with codes.FailedPrecondition before the handler runs, and put the
// four values into the trailer's metadata under the same names in lower case.
package slots
