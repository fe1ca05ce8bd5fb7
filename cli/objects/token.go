package objects

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/cli/exit"
	"github.com/sampan-io/sampan/cli/resource"
	"github.com/sampan-io/sampan/cli/session"
	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/terminal"
)

// A token is the request of create token.
type token struct {
	audiences       []string
	duration        time.Duration
	kind, name, uid string // of the object that it is bound to
}

// boundKinds are the kinds that a token can be bound to, with their versions.
func boundKinds() map[string]string {
	return map[string]string{"Pod": "v1", "Secret": "v1", "Node": "v1"}
}

// tokenCommand returns the verb create token.
func tokenCommand(g *session.Globals) *cobra.Command {
	var t token
	cmd := &cobra.Command{
		Use:   "token SERVICE_ACCOUNT",
		Short: "Request a service account token",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("exactly one NAME is required, got %d", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := t.check(); err != nil {
				return exit.Usage(cmd.CommandPath(), err)
			}
			return t.request(cmd, g, args[0])
		},
	}
	f := cmd.Flags()
	g.PrintFlags(f)
	f.StringArrayVar(&t.audiences, "audience", nil, "intended audience of the token (default the API server); may be repeated")
	f.DurationVar(&t.duration, "duration", 0, "requested lifetime of the token; 0 means the server's default; the server may return a token with another lifetime")
	f.StringVar(&t.kind, "bound-object-kind", "", "kind of the object that the token is bound to; the token becomes invalid when it is deleted: "+strings.Join(slices.Sorted(maps.Keys(boundKinds())), ", "))
	f.StringVar(&t.name, "bound-object-name", "", "name of the object that the token is bound to")
	f.StringVar(&t.uid, "bound-object-uid", "", "UID of the object that the token is bound to (default: the existing object's)")
	return cmd
}

func (t *token) check() error {
	switch {
	case t.duration < 0:
		return errors.New("--duration must be greater than or equal to 0")
	case t.duration%time.Second != 0:
		return errors.New("--duration cannot be expressed in units less than seconds")
	case slices.Contains(t.audiences, ""):
		return errors.New("--audience must not be an empty string")
	case t.kind == "" && t.name != "":
		return errors.New("--bound-object-name can only be set if --bound-object-kind is provided")
	case t.kind == "" && t.uid != "":
		return errors.New("--bound-object-uid can only be set if --bound-object-kind is provided")
	case t.kind != "" && boundKinds()[t.kind] == "":
		return fmt.Errorf("supported --bound-object-kind values are %s", strings.Join(slices.Sorted(maps.Keys(boundKinds())), ", "))
	case t.kind != "" && t.name == "":
		return errors.New("--bound-object-name is required if --bound-object-kind is provided")
	}
	return nil
}

func (t *token) request(cmd *cobra.Command, g *session.Globals, account string) error {
	f, err := g.Format()
	if err != nil {
		return err
	}
	s, err := g.Connect()
	if err != nil {
		return err
	}
	c, err := s.Typed()
	if err != nil {
		return err
	}
	r := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: t.audiences}}
	if t.duration > 0 {
		r.Spec.ExpirationSeconds = new(int64(t.duration / time.Second))
	}
	if t.kind != "" {
		r.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{Kind: t.kind, APIVersion: boundKinds()[t.kind], Name: t.name, UID: types.UID(t.uid)}
	}
	obj, err := c.Create(cmd.Context(), client.ServiceAccounts.GroupVersionResource, s.Namespace, account, r, metav1.CreateOptions{}, "token")
	if err != nil {
		return fmt.Errorf("failed to create token: %w", err)
	}
	answer, ok := obj.(*authenticationv1.TokenRequest)
	if !ok || answer.Status.Token == "" {
		return errors.New("failed to create token: no token in server response")
	}
	if g.Output != "" {
		answer.APIVersion, answer.Kind = authenticationv1.SchemeGroupVersion.String(), "TokenRequest"
		u, err := resource.Unstructured(answer)
		if err != nil {
			return err
		}
		return f.Print(g.Out, resource.Mapping{GroupVersionResource: authenticationv1.SchemeGroupVersion.WithResource("tokenrequests"), Kind: "TokenRequest"}, u)
	}
	end := ""
	if _, is := terminal.File(g.Out); is { // a person reads it
		end = "\n"
	}
	_, err = fmt.Fprint(g.Out, answer.Status.Token, end)
	return err
}
