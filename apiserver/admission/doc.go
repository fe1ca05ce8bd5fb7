// Package admission checks and completes writes with what one needs more than the
// object itself for: who writes, what else is stored, which addresses are
// taken. (What follows from the object alone is in package catalog.)
//
// A [Plugin] sees the write as [Attributes], may change the object and may refuse.
// Plug-ins run in the order in which they were given, after the object was defaulted and before
// it is validated, so that what they add is checked like what the user wrote.
//
// A plug-in that hands out something scarce (an address, a port) reserves it
// before the write and gives the reservation back in [Attributes.Done]: after the commit
// the stored object speaks for itself, and without a commit nothing remains. So nothing
// can be given twice, nothing leaks, and there is no second book to be repaired.
package admission
