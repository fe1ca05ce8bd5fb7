// Command bench measures the program from the outside and prints ratios: each
// figure beside the floor that it can't beat on this machine, taken in the same
// run. Times in milliseconds belong to the machine, ratios to the program.
//
// It takes the path of sampan and, to take only some of the measurements, the names of
// steps (see steps). It needs root for real nodes; run it in network and
// mount namespaces of its own (unshare --net --mount), as `make bench` does.
package main
