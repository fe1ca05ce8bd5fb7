package tokens

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/yaml"

	"github.com/sampan-io/sampan/cli/exit"
	"github.com/sampan-io/sampan/cli/resource"
	"github.com/sampan-io/sampan/cli/session"
	"github.com/sampan-io/sampan/cli/show"
	"github.com/sampan-io/sampan/client"
)

func listCommand(g *session.Globals) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the tokens",
		Long: "List the bootstrap tokens. -o json, yaml, jsonpath=… and custom-columns=… print the objects of `kubeadm token list`, -o name\n" +
			"prints the ids, which `sampan token delete` takes.",
		Example: "  sampan token list\n  sampan token list -o jsonpath='{.token}{\"\\n\"}'",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			text := g.Output
			if text == "text" { // kubeadm's name for the table
				text = ""
			}
			format, err := show.Parse(text)
			if err != nil {
				return exit.Usage("sampan token list", err)
			}
			c, err := connect(g)
			if err != nil {
				return err
			}
			all, _, err := client.Secrets.List(cmd.Context(), c, metav1.NamespaceSystem, metav1.ListOptions{FieldSelector: "type=" + secretType})
			if err != nil {
				return err
			}
			all = slices.DeleteFunc(all, func(s *corev1.Secret) bool {
				return s.Name != secretPrefix+string(s.Data["token-id"]) || len(s.Data["token-secret"]) == 0
			})
			slices.SortFunc(all, func(a, b *corev1.Secret) int { return cmp.Compare(a.Name, b.Name) })
			return list(g.Out, g.Err, format, all, time.Now())
		},
	}
}

// A bootstrapToken is kubeadm's object of a token (output.kubeadm.k8s.io/v1alpha3).
type bootstrapToken struct {
	metav1.TypeMeta `json:",inline"`

	Token       string       `json:"token"`
	Description string       `json:"description,omitempty"`
	Expires     *metav1.Time `json:"expires,omitempty"`
	Usages      []string     `json:"usages,omitempty"`
	Groups      []string     `json:"groups,omitempty"`
}

// tokenOf returns the object of a Secret. An error is about the time at which it expires, which the object then lacks.
func tokenOf(s *corev1.Secret) (*bootstrapToken, error) {
	t := &bootstrapToken{
		TypeMeta:    metav1.TypeMeta{APIVersion: "output.kubeadm.k8s.io/v1alpha3", Kind: "BootstrapToken"},
		Token:       string(s.Data["token-id"]) + "." + string(s.Data["token-secret"]),
		Description: string(s.Data["description"]),
	}
	for key, value := range s.Data {
		if use, ok := strings.CutPrefix(key, usagePrefix); ok && string(value) == "true" {
			t.Usages = append(t.Usages, use)
		}
	}
	slices.Sort(t.Usages)
	if groups := string(s.Data["auth-extra-groups"]); groups != "" {
		t.Groups = strings.Split(groups, ",")
	}
	text := string(s.Data["expiration"])
	if text == "" {
		return t, nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, fmt.Errorf("token %s: expiration: must be a time such as 2006-01-02T15:04:05Z, got %q", s.Data["token-id"], text)
	}
	t.Expires = &metav1.Time{Time: at.UTC()}
	return t, nil
}

// list prints the tokens of Secrets.
func list(out, warnings io.Writer, format show.Format, all []*corev1.Secret, now time.Time) error {
	if format.IsTable() {
		w := tabwriter.NewWriter(out, 10, 4, 3, ' ', 0)
		_, _ = fmt.Fprintln(w, "TOKEN\tTTL\tEXPIRES\tUSAGES\tDESCRIPTION\tEXTRA GROUPS")
		for _, s := range all {
			_, _ = fmt.Fprintln(w, strings.Join(row(s, now), "\t"))
		}
		return w.Flush()
	}
	var objects []*unstructured.Unstructured
	for n, s := range all {
		t, invalid := tokenOf(s)
		if invalid != nil {
			_, _ = fmt.Fprintf(warnings, "Warning: %v\n", invalid)
		}
		var text []byte
		var err error
		switch format.Kind {
		case "name":
			text = fmt.Appendln(nil, string(s.Data["token-id"]))
		case "json":
			text, err = json.MarshalIndent(t, "", "    ")
			text = append(text, '\n')
		case "yaml":
			text, err = yaml.Marshal(t)
			if n > 0 {
				text = append([]byte("---\n"), text...)
			}
		default:
			var object map[string]any
			object, err = runtime.DefaultUnstructuredConverter.ToUnstructured(t)
			objects = append(objects, &unstructured.Unstructured{Object: object})
		}
		if err == nil {
			_, err = out.Write(text)
		}
		if err != nil {
			return fmt.Errorf("printing token %s: %w", s.Data["token-id"], err)
		}
	}
	if format.Kind == "custom-columns" {
		return format.PrintColumns(out, objects, true)
	}
	for _, o := range objects {
		if err := format.Print(out, resource.Mapping{}, o); err != nil {
			return err
		}
	}
	return nil
}

// row returns the columns of a token, as kubeadm prints them.
func row(s *corev1.Secret, now time.Time) []string {
	none := func(text string) string { return cmp.Or(text, "<none>") }
	t, err := tokenOf(s)
	ttl, expires := "<forever>", "<never>"
	switch {
	case err != nil:
		ttl, expires = "<invalid>", string(s.Data["expiration"])
	case t.Expires != nil:
		ttl, expires = duration.ShortHumanDuration(t.Expires.Sub(now)), string(s.Data["expiration"])
	}
	return []string{t.Token, ttl, expires, none(strings.Join(t.Usages, ",")), none(t.Description), none(strings.Join(t.Groups, ","))}
}
