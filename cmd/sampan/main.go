package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// version is set by the build.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code := sampan(ctx, stop, os.Stdin, os.Stdout, os.Stderr, os.Args[1:]...)
	stop()
	os.Exit(code)
}
