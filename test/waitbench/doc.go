// Waitbench compares package wait with other Go libraries for retries and polling, in one run on one machine:
//
//	cd test/waitbench && GOWORK=off go run .
//
// Its tests compile and run each replacement that wait/APIMACHINERY.md lists for a name of apimachinery's package wait.
// It is a separate module, so that no other module depends on the compared libraries.
package main
