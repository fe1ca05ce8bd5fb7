package snapshots

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/cluster/local"
	"github.com/sampan-io/sampan/store/snapshot"
)

// Fetch asks a running cluster for a snapshot of now. The caller reads the result to its end and closes it; that the
// stream is complete is known only from its contents. Plain asks for Secrets that are not encrypted.
func Fetch(ctx context.Context, c local.Credentials, plain bool) (io.ReadCloser, error) {
	url := c.Server + Path
	if plain {
		url += "?" + secretsParameter + "=" + snapshot.Plain
	}
	client, end, err := clientOf(c)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		end()
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		end()
		return nil, fmt.Errorf("asking the API server for a snapshot: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		defer end()
		defer resp.Body.Close()
		return nil, fmt.Errorf("asking the API server for a snapshot: %w", refusal(resp))
	}
	return &fetched{resp.Body, end}, nil
}

// fetched closes the connection with the body.
type fetched struct {
	io.ReadCloser
	end func()
}

func (f *fetched) Close() error {
	defer f.end()
	return f.ReadCloser.Close()
}

// clientOf returns an HTTP client with the credentials of an administrator, and a function that ends its connections.
func clientOf(c local.Credentials) (*http.Client, func(), error) {
	cert, err := tls.X509KeyPair(c.Cert, c.Key)
	if err != nil {
		return nil, nil, fmt.Errorf("the saved credentials of the cluster: %w", err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(c.CA)
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12},
	}
	return &http.Client{Transport: transport}, transport.CloseIdleConnections, nil
}

// refusal returns the error that an answer has.
func refusal(resp *http.Response) error {
	const most = 64 << 10
	body, err := io.ReadAll(io.LimitReader(resp.Body, most))
	if err != nil {
		return err
	}
	var status metav1.Status
	if json.Unmarshal(body, &status) == nil && status.Message != "" {
		return fmt.Errorf("%s (%d)", status.Message, resp.StatusCode)
	}
	if resp.StatusCode == http.StatusNotFound {
		return fmt.Errorf("it has no snapshots: it runs an earlier version (%d)", resp.StatusCode)
	}
	return fmt.Errorf("%s", resp.Status)
}

// Put puts the objects of a running cluster back to a snapshot, whose Secrets are plain; see [Reset]. With force it may
// be one of any cluster.
func Put(ctx context.Context, c local.Credentials, in io.Reader, force bool) (out Reverted, err error) {
	client, end, err := clientOf(c)
	if err != nil {
		return out, err
	}
	defer end()
	url := c.Server + Path
	if force {
		url += "?" + forceParameter + "=true"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, url, in)
	if err != nil {
		return out, err
	}
	req.Header.Set("Content-Type", MediaType)
	resp, err := client.Do(req)
	if err != nil {
		return out, fmt.Errorf("sending the snapshot to the API server: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return out, refusal(resp)
	}
	err = json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&out)
	return out, err
}
