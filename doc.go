// Package sampan is the root of the module. It holds only the tests of the import rules
// and of the prose. The programs are in cmd.
//
// See ARCHITECTURE.md.
package sampan
