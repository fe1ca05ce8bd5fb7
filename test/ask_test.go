package test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// ask TIMES URL sends requests, each on a connection of its own. The answers become
// the standard output.
func ask(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: ask TIMES URL")
	}
	times, err := strconv.Atoi(args[0])
	ts.Check(err)
	for range times {
		ts.Check(askOnce(ts.Stdout(), args[1]))
	}
}

func askOnce(to io.Writer, url string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, resp.Status)
	}
	_, err = io.Copy(to, resp.Body)
	return err
}

// different NUMBER requires the standard output to have so many different lines.
func different(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: different NUMBER")
	}
	lines := map[string]bool{}
	for line := range strings.Lines(ts.ReadFile("stdout")) {
		lines[line] = true
	}
	if args[0] != strconv.Itoa(len(lines)) {
		ts.Fatalf("%d different lines, want %s", len(lines), args[0])
	}
}
