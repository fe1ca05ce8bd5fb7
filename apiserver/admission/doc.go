// Package admission has the admission plug-ins: they check and complete writes by the user, the
// other stored objects and the addresses in use.
//
// Package catalog has the rules that need only the object itself.
//
// A [Plugin] sees the write as [Attributes]. A [Mutator] may change the object and may refuse; it runs
// after the object was defaulted and before it is validated, so that its additions are checked like
// the user's fields. A [Validator] may only refuse; it runs after the validation, on the object
// as it will be stored. Each kind of plug-in runs in the order in which the plug-ins were given.
//
// A plug-in that hands out something scarce (an address, a port) reserves it
// before the write and gives the reservation back in [Attributes.Done]: after the commit
// the stored object holds it, and without a commit it is free again. So nothing
// is allocated twice, nothing leaks, and there is no second record to repair.
package admission
