package test

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// registry serves the image of an OCI archive under every name, on loopback until the script ends, and sets a variable to
// the address: registry VARIABLE FILE [USER:PASSWORD].
func registry(ts *testscript.TestScript, neg bool, args []string) {
	const least, most = 2, 3
	if neg || len(args) < least || len(args) > most {
		ts.Fatalf("usage: registry VARIABLE FILE [USER:PASSWORD]")
	}
	files, err := archiveFiles(ts.MkAbs(args[1]))
	ts.Check(err)
	var index struct {
		Manifests []struct{ Digest, MediaType string }
	}
	ts.Check(json.Unmarshal(files["index.json"], &index))
	access := ""
	if len(args) == most {
		access = args[2]
	}
	manifest := index.Manifests[0]
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		if access != "" && user+":"+password != access {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		last := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
		switch {
		case r.URL.Path == "/v2/":
		case strings.Contains(r.URL.Path, "/manifests/") && last != "none" && (!strings.HasPrefix(last, "sha256:") || last == manifest.Digest):
			w.Header().Set("Content-Type", manifest.MediaType)
			_, _ = w.Write(files["blobs/sha256/"+strings.TrimPrefix(manifest.Digest, "sha256:")])
		case strings.Contains(r.URL.Path, "/blobs/") && files["blobs/sha256/"+strings.TrimPrefix(last, "sha256:")] != nil:
			_, _ = w.Write(files["blobs/sha256/"+strings.TrimPrefix(last, "sha256:")])
		default:
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}`)
		}
	}))
	ts.Defer(s.Close)
	ts.Setenv(args[0], strings.TrimPrefix(s.URL, "http://"))
}

func archiveFiles(name string) (map[string][]byte, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	entries := tar.NewReader(bytes.NewReader(data))
	for {
		h, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, err
		}
		if files[h.Name], err = io.ReadAll(entries); err != nil {
			return nil, err
		}
	}
}
