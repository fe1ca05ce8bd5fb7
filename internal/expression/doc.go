// Package expression evaluates yes-or-no questions about one object in CEL, the Common Expression
// Language that Kubernetes uses in its policies:
//
//	object.status.readyReplicas == object.spec.replicas
//	object.status.conditions.exists(c, c.type == "Ready" && c.status == "True")
//
// An expression is compiled once and then evaluated for any number of objects, from any number of
// goroutines. The object is the variable object, and self, which is the same.
//
// Three properties make it suitable for waiting:
//
//   - A missing value is a "no" and not an error: the absence of a field, a key or
//     an element that the answer depends on makes the expression not hold. has() and the
//     optional form object.?status.?phase work, but are not needed.
//   - It is bounded. The text, the depth, the work and the memory of an evaluation have
//     limits, so that a stranger's expression can be evaluated on a server.
//   - It depends on the object only. There is no clock (timestamps can be
//     compared with each other), so it need not be evaluated again until the object changes.
//
// Numbers compare across types, because JSON does not distinguish 3 from 3.0. Arithmetic does not
// mix them: an object read with encoding/json has doubles everywhere, and needs
// int(object.spec.replicas) + 1 there.
//
// Beside CEL's own functions there are the optional types, the two-variable macros, math (greatest,
// least, abs, …), sets (one argument of which is written out), slice for lists, and the string
// functions that Kubernetes has, but for replace, join and format: one call of those can fill the
// memory. Of what Kubernetes offers, its own additions are also left out: quantity(), url(), ip(),
// cidr(), semver(), find(), the list functions sum, min, max, isSorted and indexOf, and the
// authorizer.
package expression
