// Package fieldpath asks yes-or-no questions about one field of an object, in
// kubectl's JSONPath: whether it has a value, and how that stands to another.
//
// The text form is PATH, PATH=VALUE, or PATH with one of != < > <= >= and a value, PATH
// exists, PATH absent. The four that order compare numbers, quantities and times. All
// but absent are "no" where there is no value.
//
// Its sibling for whole objects is package expression. It knows no kinds.
package fieldpath
