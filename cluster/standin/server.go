package standin

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/sampan-io/sampan/cluster/local"
	"github.com/sampan-io/sampan/cluster/pki"
)

// A Server is a parsed command line of kube-apiserver.
type Server struct {
	Etcd        string          // URL
	Address     netip.AddrPort  // to listen on
	Certificate tls.Certificate // for HTTPS
	ClientCA    []byte          // authorities of client certificates, PEM; nil means none
	TokenKeys   *pki.TokenKeys  // of service accounts
	Issuer      string          // of their tokens
	Services    local.Pair      // networks of cluster IPs

	Controllers       local.Controllers // empty means none
	DisabledAdmission []string          // names of plug-ins
	EnabledAdmission  []string          // names of plug-ins, which are on without this
	Flags             local.ServerFlags
}

// serverArgs are the flags of kube-apiserver that need more than their own value.
type serverArgs struct {
	etcd, certDir, certFile, keyFile, clientCA, signingKey, issuer, services, bind string
	port                                                                           uint16
	privileged                                                                     bool
	publicKeys, modes, disabled, enabled, controllers                              []string
}

// ParseServer reads the arguments of kube-apiserver, and the files that they name. It writes the help text or the version to out if the
// arguments ask for it. The error names the flag that is wrong.
func ParseServer(args []string, version string, out io.Writer) (*Server, error) {
	s, a := &Server{}, serverArgs{}
	f := pflag.NewFlagSet("kube-apiserver", pflag.ContinueOnError)
	f.SetOutput(out)
	f.StringVar(&a.etcd, "etcd-servers", "", "URL of Sampan under the name etcd")
	f.StringVar(&a.bind, "bind-address", "127.0.0.1", "IP address to listen on")
	f.Uint16Var(&a.port, "secure-port", 6443, "port to listen on")
	f.StringVar(&a.certDir, "cert-dir", "/var/run/kubernetes", "directory with apiserver.crt and apiserver.key")
	f.StringVar(&a.certFile, "tls-cert-file", "", "certificate for HTTPS, in place of the one in --cert-dir")
	f.StringVar(&a.keyFile, "tls-private-key-file", "", "its key")
	f.StringVar(&a.clientCA, "client-ca-file", "", "authorities whose client certificates are accepted")
	f.StringVar(&a.signingKey, "service-account-signing-key-file", "", "private key that signs tokens of service accounts: ECDSA on the curve P-256")
	f.StringArrayVar(&a.publicKeys, "service-account-key-file", nil, "keys or certificates whose tokens are accepted as well")
	f.StringVar(&a.issuer, "service-account-issuer", "", "issuer of tokens of service accounts")
	f.StringVar(&a.services, "service-cluster-ip-range", "10.0.0.0/24", "networks of cluster IPs, one for each IP family")
	f.BoolVar(&a.privileged, "allow-privileged", false, "must be true: privileged containers are allowed")
	f.StringSliceVar(&a.modes, "authorization-mode", []string{"RBAC"}, "must be RBAC, or RBAC and Node")
	f.StringSliceVar(&a.disabled, "disable-admission-plugins", nil, "admission plug-ins that are not used")
	f.StringSliceVar(&a.enabled, "enable-admission-plugins", nil, "admission plug-ins that are used: all that are not disabled are")
	f.StringSliceVar(&a.controllers, "controllers", nil, "controllers to run beside the API server, in kube-controller-manager's format: NAME, * for all, -NAME for all except that one; none without this")
	for _, flag := range local.AllServerFlags() {
		f.VarPF(flagValue{flag, &s.Flags}, flag.Name, "", flag.Usage).NoOptDefVal = flag.Alone()
	}
	asked := f.Bool("version", false, "print the version and exit")
	if err := f.Parse(args); err != nil {
		return nil, help(err)
	}
	if *asked {
		_, _ = fmt.Fprintf(out, "Kubernetes %s\n", version)
		return nil, errHelp
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	s.Controllers = local.Controllers(strings.Join(a.controllers, ","))
	return s, errors.Join(a.check(), s.Controllers.CheckAlone(), s.read(a))
}

// check refuses what Sampan would not do.
func (a serverArgs) check() error {
	var errs []error
	if !a.privileged {
		errs = append(errs, errors.New("--allow-privileged: must be true"))
	}
	for _, mode := range a.modes {
		if mode != "RBAC" && mode != "Node" {
			errs = append(errs, fmt.Errorf("--authorization-mode: must be RBAC, or RBAC and Node, got %q", mode))
		}
	}
	if !slices.Contains(a.modes, "RBAC") {
		errs = append(errs, errors.New("--authorization-mode: must include RBAC"))
	}
	for _, name := range a.enabled {
		if slices.Contains(a.disabled, name) {
			errs = append(errs, fmt.Errorf("%s: a plug-in cannot be both in --enable-admission-plugins and in --disable-admission-plugins", name))
		}
	}
	return errors.Join(errs...)
}

// read fills in s.
func (s *Server) read(a serverArgs) (err error) {
	s.Issuer, s.DisabledAdmission, s.EnabledAdmission, s.Etcd = a.issuer, a.disabled, a.enabled, a.etcd
	if u, err := url.Parse(a.etcd); err != nil || u.Scheme != "http" || u.Host == "" {
		return fmt.Errorf("--etcd-servers: must be one URL such as http://127.0.0.1:2379, got %q", a.etcd)
	}
	address, err := netip.ParseAddr(a.bind)
	if err != nil {
		return fmt.Errorf("--bind-address: must be an IP address, got %q", a.bind)
	}
	s.Address = netip.AddrPortFrom(address, a.port)
	if s.Services, err = local.ParsePair(a.services); err != nil {
		return fmt.Errorf("--service-cluster-ip-range: %w", err)
	}
	if a.certFile == "" {
		a.certFile, a.keyFile = filepath.Join(a.certDir, "apiserver.crt"), filepath.Join(a.certDir, "apiserver.key")
	}
	if s.Certificate, err = tls.LoadX509KeyPair(a.certFile, a.keyFile); err != nil {
		return fmt.Errorf("certificate for HTTPS in --cert-dir or --tls-cert-file: %w", err)
	}
	if a.clientCA != "" {
		if s.ClientCA, err = os.ReadFile(a.clientCA); err == nil && !x509.NewCertPool().AppendCertsFromPEM(s.ClientCA) {
			err = fmt.Errorf("%s contains no certificate", a.clientCA)
		}
		if err != nil {
			return fmt.Errorf("--client-ca-file: %w", err)
		}
	}
	if s.Issuer == "" {
		return errors.New("--service-account-issuer: is required")
	}
	s.TokenKeys, err = tokenKeys(a.signingKey, a.publicKeys)
	return err
}

// tokenKeys reads the key that signs tokens, and other keys whose tokens are accepted.
func tokenKeys(signing string, others []string) (*pki.TokenKeys, error) {
	data, err := os.ReadFile(signing)
	if err != nil {
		return nil, fmt.Errorf("--service-account-signing-key-file: %w", err)
	}
	keys := &pki.TokenKeys{}
	for block := range blocks(data) {
		if key, err := privateKey(block.Bytes); err == nil {
			keys.Key = key
			break
		}
	}
	if keys.Key == nil || keys.Key.Curve != elliptic.P256() {
		return nil, fmt.Errorf("--service-account-signing-key-file: %s must contain an ECDSA key on the curve P-256", signing)
	}
	for _, file := range others {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("--service-account-key-file: %w", err)
		}
		found := false
		for block := range blocks(data) {
			key, ok := publicKey(block.Bytes).(*ecdsa.PublicKey)
			if !ok || key.Curve != elliptic.P256() {
				continue
			}
			found = true
			if !key.Equal(keys.Key.Public()) {
				keys.Former = append(keys.Former, key)
			}
		}
		if !found {
			return nil, fmt.Errorf("--service-account-key-file: %s must contain ECDSA keys on the curve P-256, or certificates of such", file)
		}
	}
	return keys, nil
}

// blocks returns the blocks of a PEM file.
func blocks(data []byte) func(func(*pem.Block) bool) {
	return func(yield func(*pem.Block) bool) {
		for rest := bytes.Clone(data); ; {
			var block *pem.Block
			if block, rest = pem.Decode(rest); block == nil || !yield(block) {
				return
			}
		}
	}
}

func privateKey(der []byte) (*ecdsa.PrivateKey, error) {
	if key, err := x509.ParseECPrivateKey(der); err == nil {
		return key, nil
	}
	key, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, err
	}
	if key, ok := key.(*ecdsa.PrivateKey); ok {
		return key, nil
	}
	return nil, fmt.Errorf("is a %T", key)
}

// publicKey returns the public key of a certificate, a private or a public key, or nil.
func publicKey(der []byte) any {
	if cert, err := x509.ParseCertificate(der); err == nil {
		return cert.PublicKey
	}
	if key, err := privateKey(der); err == nil {
		return key.Public()
	}
	if key, err := x509.ParsePKIXPublicKey(der); err == nil {
		return key
	}
	return nil
}

// flagValue reads a flag that all API servers of Sampan have.
type flagValue struct {
	local.ServerFlag
	to *local.ServerFlags
}

func (f flagValue) String() string { return f.Default }

func (f flagValue) Set(text string) error {
	value, err := f.Parse(text)
	if err == nil {
		f.to.Set(f.Name, value)
	}
	return err
}

func (f flagValue) Type() string { return string(f.Kind) }
