// Package nstest runs tests in namespaces of their own, so that the interfaces,
// rules and mounts that they make can't be seen by, or leak into, the machine.
//
// [Run] gives one test a world of its own, [Main] all tests of a package one
// together, and [Mounts] a command a place where it may mount. In the first two, lo is
// up and there is no way out. What is left behind in there ends with it. Cgroups
// can't be had privately: tests give theirs unique names.
//
// A world is had by running the test program a second time. Making one needs root:
// who is not root skips ([NeedRoot]), except for Mounts.
//
// It is a test kit: only tests and kits import it.
package nstest
