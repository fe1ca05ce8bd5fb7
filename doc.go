// Package sampan is the root of the module, which holds nothing but the tests of
// the house itself: which package may import which. The programs are below cmd.
//
// See ARCHITECTURE.md for the plan.
package sampan
