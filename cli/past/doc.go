// Package past has the verbs history and diff: the changes of objects, and the differences between two of their earlier states, of a
// cluster that keeps its history.
package past
