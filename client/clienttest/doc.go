// Package clienttest is the API server for tests of the parts that use package client: the real one,
// with its store in memory, behind a client that can fail.
//
// [Server] implements client.Interface. It serves what apiservertest.OpenBare does: all operations
// of the program's API server, for objects that need not be complete. A test puts objects there and
// takes them away without the rules of the API, reads what there is, counts requests, refuses them,
// breaks watches and makes their history too short. A test that changes a shared object fails. It
// works in a bubble of testing/synctest.
//
// Defaults, validation and authorization are those of apiservertest.Open. Garbage collection,
// scheduling and everything else that controllers do is left to them.
//
// [Conform] checks that a client.Interface behaves as controllers expect, in process and over HTTP.
package clienttest
