package session

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/cli/resource"
	"github.com/sampan-io/sampan/cli/schema"
)

// A Strictness is what is done with fields that a kind does not have: one of
// metav1.FieldValidation….
type Strictness string

// AddFlag gives a verb --validate; it is strict until it is given.
func (v *Strictness) AddFlag(cmd *cobra.Command) {
	*v = metav1.FieldValidationStrict
	f := cmd.Flags().VarPF(v, "validate", "", "how to treat unknown, duplicate and invalid fields: strict (or true) rejects the object before it is sent, "+
		"warn prints the server's warnings, ignore (or false) drops the fields")
	f.NoOptDefVal = "strict"
	f.DefValue = "strict"
}

// String implements pflag.Value.
func (v *Strictness) String() string { return strings.ToLower(string(*v)) }

// Type implements pflag.Value.
func (v *Strictness) Type() string { return "strict|warn|ignore" }

// Set implements pflag.Value.
func (v *Strictness) Set(text string) error {
	switch text {
	case "strict", "true":
		*v = metav1.FieldValidationStrict
	case "warn":
		*v = metav1.FieldValidationWarn
	case "ignore", "false":
		*v = metav1.FieldValidationIgnore
	default:
		return errors.New("must be strict, warn or ignore")
	}
	return nil
}

// maxFaults is how many errors of one object are printed. With more of them, one error
// usually causes the others.
const maxFaults = 10

// Check returns what is wrong with an object from a file by the server's schemas, each
// fault with its line and column, if validation is strict.
func (s *Session) Check(ctx context.Context, v Strictness, info resource.Info) error {
	if v != metav1.FieldValidationStrict || info.Object == nil {
		return nil
	}
	if s.schemas == nil {
		s.schemas = schema.New(schema.Options{Server: s.REST, Cache: cacheOf(s.REST.Config().Host)})
	}
	var errs []error
	for n, f := range s.schemas.Check(ctx, info.Mapping.GVK(), info.Object.Object) {
		if n == maxFaults {
			errs = append(errs, info.Fault(errors.New("this object has more errors")))
			break
		}
		errs = append(errs, info.Fault(errors.New(f.Message), f.Path))
	}
	return errors.Join(errs...)
}

// cacheOf returns where the schemas of a server are kept, or "".
func cacheOf(host string) string {
	dir, err := os.UserCacheDir()
	u, parseErr := url.Parse(host)
	if err != nil || parseErr != nil || u.Host == "" {
		return ""
	}
	return filepath.Join(dir, "sampan", "openapi", strings.NewReplacer(":", "-", "/", "-").Replace(u.Host+u.Path))
}

// NotAnObject says that the server answered a request for an object with something else.
func NotAnObject(i resource.Info, answer any) error {
	return i.Fault(fmt.Errorf("the server returned a %T", answer))
}
