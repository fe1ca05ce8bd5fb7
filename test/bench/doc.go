// Command bench measures the program from the outside and prints ratios: each
// figure beside its lower bound on this machine, measured in the same run. Times in
// milliseconds depend on the machine, ratios on the program.
//
// Its arguments are the path of sampan and, to run only a few of the measurements, the
// names of steps (see steps). It needs root for real nodes; run it in its own network and
// mount namespaces (unshare --net --mount), as `make bench` does.
package main
