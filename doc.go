// Package sampan is the root of the module. It holds only tests about the whole tree: import
// rules, prose, links in comments, platforms, and pages that are generated. The programs are in cmd.
//
// See ARCHITECTURE.md.
package sampan
