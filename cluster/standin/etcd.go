package standin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"

	"github.com/sampan-io/sampan/internal/names"
)

// dataPath is where etcd says which directory has the data.
const dataPath = "/" + names.Prefix + "data"

// dataAnswer is the document at dataPath.
type dataAnswer struct {
	Directory string `json:"directory"` // absolute
}

// askTimeout is far more than a process on the same machine needs for an answer.
const askTimeout = 10 * time.Second

// RunEtcd serves as etcd until ctx is over, with the arguments of its command line. It writes the help text to out if
// the arguments ask for it.
func RunEtcd(ctx context.Context, args []string, out io.Writer) error {
	f := pflag.NewFlagSet("etcd", pflag.ContinueOnError)
	f.SetOutput(out)
	dir := f.String("data-dir", "default.etcd", "directory in which the API server stores")
	clients := f.String("listen-client-urls", "http://localhost:2379", "URL to answer at")
	_ = f.String("advertise-client-urls", "", "the same URL, for clients")
	_ = f.String("listen-peer-urls", "", "accepted because envtest passes it; there are no peers")
	if err := f.Parse(args); err != nil {
		return help(err)
	}
	if f.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	at, err := url.Parse(*clients)
	if err != nil || at.Scheme != "http" || at.Host == "" {
		return fmt.Errorf("--listen-client-urls: must be one URL such as http://127.0.0.1:2379, got %q", *clients)
	}
	if *dir, err = filepath.Abs(*dir); err != nil {
		return err
	}
	if err := os.MkdirAll(*dir, 0o700); err != nil {
		return fmt.Errorf("--data-dir: %w", err)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", at.Host)
	if err != nil {
		return fmt.Errorf("--listen-client-urls: %w", err)
	}
	server := &http.Server{Handler: etcdHandler(*dir), ReadHeaderTimeout: askTimeout}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// etcdHandler answers for etcd with the data in dir.
func etcdHandler(dir string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		if _, err := os.Stat(dir); err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			writeJSON(w, map[string]string{"health": "false", "reason": err.Error()})
			return
		}
		writeJSON(w, map[string]string{"health": "true"})
	})
	mux.HandleFunc("GET "+dataPath, func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, dataAnswer{Directory: dir}) })
	return mux
}

func writeJSON(w io.Writer, v any) { _ = json.NewEncoder(w).Encode(v) } // a client that is gone reads no answer

// DataDir returns the directory of the data of the etcd at a URL, which must be [RunEtcd].
func DataDir(ctx context.Context, server string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, server+dataPath, nil)
	if err != nil {
		return "", fmt.Errorf("--etcd-servers: %w", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", fmt.Errorf("--etcd-servers: %w", err)
	}
	defer resp.Body.Close()
	var a dataAnswer
	if resp.StatusCode != http.StatusOK || json.NewDecoder(resp.Body).Decode(&a) != nil || !filepath.IsAbs(a.Directory) {
		return "", fmt.Errorf("--etcd-servers: %s is another program, and Sampan does not store in etcd; put Sampan into the directory of the programs under the name etcd as well", server)
	}
	return a.Directory, nil
}

// errHelp is returned after the help text or the version was written.
var errHelp = errors.New("help was asked for")

// help replaces pflag's error for --help.
func help(err error) error {
	if errors.Is(err, pflag.ErrHelp) {
		return errHelp
	}
	return err
}

// IsHelp reports whether an error of this package means that only the help text or the version was asked for.
func IsHelp(err error) bool { return errors.Is(err, errHelp) }
