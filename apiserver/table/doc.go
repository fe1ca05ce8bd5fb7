// Package table converts objects to rows of a table (metav1.Table), from the columns of their
// kind in the catalog, and to their metadata (metav1.PartialObjectMetadata).
//
// Both are what clients ask for with "as=" in the Accept header: kubectl prints the
// table that the server made, so a kind's columns are defined in one place.
package table
