// Package fieldpath tests one field of an object, found by a kubectl JSONPath: whether it has a value, and how the value
// compares to another.
//
// The text form is PATH, PATH=VALUE, PATH with one of != < > <= >= and a value, PATH exists, or PATH absent. The four
// operators < > <= >= compare numbers, quantities and times. All but absent are false if there is no value.
//
// Package expression does the same for whole objects, in CEL. Neither depends on the kind.
package fieldpath
