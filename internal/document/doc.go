// Package document reads a configuration file, one YAML or JSON document, strictly into a Go value:
// fields that the type does not have, duplicate fields and values of the wrong type are faults. A
// fault names the file, the line and column, and the field's path, and all faults are returned at
// once.
//
// The caller checks the content further, and passes the paths of the faults that it finds to
// [Document.Faults].
package document
