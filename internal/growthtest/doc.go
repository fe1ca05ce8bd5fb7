// Package growthtest makes API objects with one list or map at its largest, and checks that the cost of work on them is linear in
// their size.
//
// [Fields] finds the lists and maps of a type by reflection, so that a test meets fields that are added later. [Linear] compares
// the cost at n elements with the cost at 2n.
//
// It is a test kit: only tests and kits import it.
package growthtest
