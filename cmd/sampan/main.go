package main

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"syscall"
)

// version is set by the build. Without that it is what Go has recorded, see versionOf.
var version = ""

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	if version == "" {
		info, _ := debug.ReadBuildInfo()
		version = versionOf(info)
	}
	var code int
	if run := standIn(filepath.Base(os.Args[0])); run != nil {
		code = run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	} else {
		code = sampan(ctx, stop, os.Stdin, os.Stdout, os.Stderr, os.Args[1:]...)
	}
	stop()
	os.Exit(code)
}
