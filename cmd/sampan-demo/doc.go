// Command sampan-demo is the program in the demo images: a small web server that
// responds with its own name, and a few other commands to try a cluster with.
//
// It is the only file in its image, so it has the commands that tests and stories need:
// to print, read and write files, send requests and exhaust resources. It links no
// other package of Sampan but internal/run.
package main
