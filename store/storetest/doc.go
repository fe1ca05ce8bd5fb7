// Package storetest tests the invariants of package store (I1 to I10) on a Store over any backend.
//
// [Run] plays every invariant, [Model] compares a store with a plain map under
// random operations, restarts and crashes, [Linear] has clients write at the same
// time and checks that their answers fit together. All are given a [Medium], which is a
// place that can be opened again after a crash. Crashes are played by cutting the
// backend off in the middle; real ones (kill -9, a torn file) are in
// each backend's own tests, and so is I7.
package storetest
