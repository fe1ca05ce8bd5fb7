// Package nstest runs tests in separate Linux namespaces, so that the interfaces,
// rules and mounts that they make do not leak into the machine.
//
// [Run] gives one test separate namespaces, [Main] all tests of a package shared
// ones, and [Mounts] a command a mount namespace. In the first two, lo is
// up and there is no way out. Everything that is left behind in there ends with the namespaces. Cgroups
// are not separate: tests give theirs unique names.
//
// The namespaces are made for a second process of the test program. That needs root:
// other users skip ([NeedRoot]), except for Mounts.
//
// It is a test kit: only tests and kits import it.
package nstest
