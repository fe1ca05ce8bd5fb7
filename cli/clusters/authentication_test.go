package clusters

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sampan-io/sampan/cluster/local"
	"github.com/sampan-io/sampan/cluster/pki"
)

// TestAuthenticationFlags gives each flag and checks that the arguments for the program in the background say the same.
func TestAuthenticationFlags(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{
		"--authentication-config=" + file, "--anonymous-auth=false", "--oidc-issuer-url=https://i", "--oidc-client-id=c", "--oidc-ca-file=" + file,
		"--oidc-username-claim=u", "--oidc-username-prefix=-", "--oidc-groups-claim=g", "--oidc-groups-prefix=g:", "--oidc-signing-algs=ES256,RS256",
		"--oidc-required-claim=a=b,c", "--oidc-required-claim=d=e", "--requestheader-client-ca-file=" + file, "--requestheader-allowed-names=x,y",
		"--requestheader-username-headers=X-A,X-B", "--requestheader-uid-headers=X-C", "--requestheader-group-headers=X-D", "--requestheader-extra-headers-prefix=X-E-",
	}
	read := func(args []string) local.Authentication {
		var a local.Authentication
		f := pflag.NewFlagSet("test", pflag.ContinueOnError)
		authenticationFlags(f, &a)
		given := 0
		if err := f.Parse(args); err != nil {
			t.Fatal(err)
		}
		if f.Visit(func(*pflag.Flag) { given++ }); given != len(args)-1 && len(args) == 18 {
			t.Errorf("%d flags were given", given)
		}
		return a
	}
	first := read(args)
	if first.OIDC.RequiredClaims[0] != "a=b,c" || *first.Anonymous || len(first.RequestHeader.UsernameHeaders) != 2 {
		t.Errorf("the flags are %+v", first)
	}
	if again := read(authenticationArgs(first)); !reflect.DeepEqual(first, again) {
		t.Errorf("the arguments are %q", authenticationArgs(first))
	}
	if a := read([]string{"--anonymous-auth"}); a.Anonymous == nil || !*a.Anonymous {
		t.Error("the flag without a value is not true")
	}
}

// certs runs a verb on the keys of a cluster that does not run.
func certs(t *testing.T, data string, args ...string) (string, error) {
	t.Helper()
	root := &cobra.Command{Use: "sampan", SilenceErrors: true, SilenceUsage: true}
	root.PersistentFlags().String("name", "certs-test", "")
	root.PersistentFlags().String("data-dir", data, "")
	root.AddCommand(certsCommand())
	var out strings.Builder
	root.SetOut(&out)
	root.SetArgs(append([]string{"certs"}, args...))
	err := root.Execute()
	return out.String(), err
}

func TestCerts(t *testing.T) {
	data := t.TempDir()
	step := func(want string, args ...string) {
		t.Helper()
		out, err := certs(t, data, args...)
		if err != nil {
			out += "error: " + err.Error()
		}
		if !strings.Contains(out, want) {
			t.Errorf("%q: %s, want %q", args, out, want)
		}
	}
	step("error: cluster certs-test has no keys yet", "check")
	if _, err := pki.OpenTokenKeys(filepath.Join(data, "pki")); err != nil {
		t.Fatal(err)
	}
	step("0 former accepted", "check")
	step("a new key signs", "rotate", "token-key")
	step("1 former accepted", "check")
	step("tokens of former keys are invalid", "rotate", "token-key", "--drop-former")
	step("0 former accepted", "check")
	step("error: --activate: is for certificate authorities", "rotate", "token-key", "--activate")
	step("error: no new ca.crt is prepared", "rotate", "ca", "--activate")
	step("is prepared: it is trusted", "rotate", "ca")
	step("error: a new ca.crt is prepared already", "rotate", "ca")
	step("prepared", "check")
	step("signs; the former one stays trusted", "rotate", "ca", "--activate")
	step("trusted", "check")
	step("not trusted any more", "rotate", "ca", "--drop-former")
	step(`error: want one of token-key, ca, front-proxy-ca, got ["x"]`, "rotate", "x")
	step(`error: want one of token-key, ca, front-proxy-ca, got []`, "rotate")
	step("must not be used together", "rotate", "ca", "--activate", "--drop-former")
}
