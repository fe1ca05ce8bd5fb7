package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"unsafe"

	"github.com/sampan-io/sampan/internal/run"
)

func cat([]string) error {
	_, err := io.Copy(os.Stdout, os.Stdin)
	return err
}

// terminal prints the size of the terminal, and again after each line of input.
func terminal([]string) error {
	lines := bufio.NewScanner(os.Stdin)
	for {
		var size struct{ rows, columns, x, y uint16 }
		_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, os.Stdout.Fd(), syscall.TIOCGWINSZ, uintptr(unsafe.Pointer(&size)))
		if errno != 0 {
			fmt.Println("no terminal")
		} else {
			fmt.Printf("terminal %d columns %d rows, %s\n", size.columns, size.rows, os.Getenv("TERM"))
		}
		if !lines.Scan() {
			return lines.Err()
		}
	}
}

// mirror sends back what comes over TCP.
func mirror(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: mirror PORT")
	}
	address := "127.0.0.1:" + args[0]
	if port, ok := strings.CutPrefix(args[0], "6:"); ok {
		address = "[::1]:" + port
	}
	var config net.ListenConfig
	listener, err := config.Listen(context.Background(), "tcp", address)
	if err != nil {
		return err
	}
	fmt.Println("listening")
	group := run.NewGroup(context.Background(), 0)
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		group.Go(func(context.Context) {
			defer conn.Close()
			n, _ := io.Copy(conn, conn)
			_, _ = fmt.Fprintf(conn, "%d bytes\n", n)
		})
	}
}
