// Servetest runs a stand-in for systemd-logind on a D-Bus socket, for tests of programs. It reads commands from its standard input,
// one a line, and answers each with a line: "locked" and "unlocked" wait until a lock is held and until none is, "shutdown" and
// "cancel" announce the beginning and the end of a shutdown, "hang" makes it answer no client any more.
package main

import (
	"bufio"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/sampan-io/sampan/node/shutdown/logindtest"
)

func main() {
	d, err := logindtest.Serve(os.Args[1], time.Hour, time.Hour)
	if err != nil {
		log.Fatal(err)
	}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		switch command := in.Text(); command {
		case "listening":
		case "locked":
			d.Await(1, 1)
		case "unlocked":
			d.Await(0, 1)
		case "shutdown", "cancel":
			d.Shutdown(command == "shutdown")
		case "hang":
			d.Hang()
			d.Drop()
		default:
			log.Fatalf("unknown command %q", command)
		}
		fmt.Println("done")
	}
}
