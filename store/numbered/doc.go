// Package numbered gives the whole contract of package store over a store that
// can only create: an object store without replace-if-version (ST17).
//
// Of the store below it uses Create, Get, List and Delete, never Replace and
// never DeleteIf. Each state of a key is an object of its own, made once and
// never changed. The objects of a key are numbered; a state replaces state n by
// being the one that creates number n+1.
//
// # Numbers that were used are never free again
//
// Old states have to go, and a number whose object is gone looks free. So a
// boundary mark, an object of its own that says "all numbers up to b are void",
// is durable before any of them is deleted. The rules, on which everything
// rests:
//
//	N1  Number n+1 is created only by a writer that knew state n as the present
//	    one, or that knew that the key was absent with n as its highest number.
//	N2  A mark b is created only when the register is past b: there is a state
//	    above b, or state b is a tombstone. So it is true for ever.
//	N3  An object with number n is deleted only when a mark of at least n is
//	    there, and a mark only when many higher ones are (keepMarks).
//	N4  The present state is the one with the highest number, if that is above
//	    the highest mark; else, or if it is a tombstone, the key is absent.
//	N5  A writer that created number n lists the key's objects afterwards. If it
//	    sees no mark of at least n, there was none before its create (N3), so
//	    number n had not been deleted (N3), so its create was the first: it won.
//
//	N6  A reader that saw number n as the present one, and then read it, lists
//	    again: without a mark of at least n, what it read is state n. It need not
//	    if it knows the state's nonce already.
//
// A writer that slept while its number was used and deleted creates an object
// in vain. It lies below a mark, so nobody takes it for a state (N4), and its
// writer finds that mark (N5). The mark alone does not tell it from a writer
// that won and was overtaken before it looked. Every state carries the nonces of
// the states before it, and so does every mark: as long as those reach back, the
// writer learns for certain whether it won. Beyond that the answer is
// store.ErrUnknown, and never a guess.
//
// What was deleted leaves its highest mark behind, so that numbers, and with
// them versions, never come back (ST4).
//
// # What the store below owes
//
// Package store's contract for the four operations it uses. A listing must also
// show each page as of one instant, or read its keys in order: one that shows a
// key and misses a greater one which was there earlier is not fit. Where a
// listing does not show what the handle itself wrote, the answer is
// store.ErrUnknown.
//
// docs/stores/numbered.md says what it costs.
package numbered
