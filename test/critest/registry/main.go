// Command registry serves the images of an archive, as docker save makes it, over plain HTTP on a free port of 127.0.0.1, whatever
// registries their names have. It prints the address, and serves until its standard input ends.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: registry FILE")
		os.Exit(2)
	}
	if err := serve(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "registry:", err)
		os.Exit(1)
	}
}

func serve(path string) error {
	handler := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	open := func() (io.ReadCloser, error) { return os.Open(path) }
	list, err := tarball.LoadManifest(open)
	if err != nil {
		return err
	}
	for _, d := range list {
		for _, text := range d.RepoTags {
			tag, err := name.NewTag(text)
			if err != nil {
				return err
			}
			img, err := tarball.Image(open, &tag)
			if err != nil {
				return err
			}
			if err := push(handler, tag, img); err != nil {
				return fmt.Errorf("%s: %w", text, err)
			}
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = l.Close()
	}()
	if err := http.Serve(l, handler); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// push stores an image, without the registry in its name.
func push(to http.Handler, tag name.Tag, img v1.Image) error {
	send := func(method, path, media string, body []byte) error {
		r := httptest.NewRequest(method, "/v2/"+tag.RepositoryStr()+path, bytes.NewReader(body))
		if media != "" {
			r.Header.Set("Content-Type", media)
		}
		w := httptest.NewRecorder()
		if to.ServeHTTP(w, r); w.Code >= http.StatusMultipleChoices {
			return fmt.Errorf("%s %s: %d %s", method, path, w.Code, strings.TrimSpace(w.Body.String()))
		}
		return nil
	}
	blob := func(digest v1.Hash, body []byte) error {
		return send(http.MethodPost, "/blobs/uploads/?digest="+digest.String(), "", body)
	}
	layers, err := img.Layers()
	if err != nil {
		return err
	}
	for _, l := range layers {
		digest, err := l.Digest()
		if err != nil {
			return err
		}
		in, err := l.Compressed()
		if err != nil {
			return err
		}
		body, err := io.ReadAll(in)
		if err := errors.Join(err, in.Close()); err != nil {
			return err
		}
		if err := blob(digest, body); err != nil {
			return err
		}
	}
	digest, err := img.ConfigName()
	if err != nil {
		return err
	}
	config, err := img.RawConfigFile()
	if err != nil {
		return err
	}
	if err := blob(digest, config); err != nil {
		return err
	}
	manifest, err := img.RawManifest()
	if err != nil {
		return err
	}
	media, err := img.MediaType()
	if err != nil {
		return err
	}
	return send(http.MethodPut, "/manifests/"+tag.TagStr(), string(media), manifest)
}
