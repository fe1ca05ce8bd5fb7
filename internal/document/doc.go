// Package document reads a configuration file, one YAML or JSON document, strictly
// into a Go value: fields that the type does not have, fields that stand there twice
// and values of the wrong type are faults. A fault names the file, the line and
// column, and the field's path, and all faults are told at once.
//
// What only the content shows is checked by the caller, who gives the faults that it
// finds by their paths to [Document.Faults].
package document
