// Package custom makes kinds of custom resources from their definitions (CustomResourceDefinition). It decides only: a
// kind prunes, completes and validates objects as the schema of the definition says.
//
// The kind is in the storage version; the other versions that are served are its Versions. Objects are
// *unstructured.Unstructured.
package custom
