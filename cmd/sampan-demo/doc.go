// Command sampan-demo is the program in the demo images: a small web server that
// says who answers, and a few other things to try a cluster with.
//
// It is alone in its image, so it brings what tests and stories need in there: things
// to print, read, write, ask for and run out of. It links nothing of Sampan.
package main
