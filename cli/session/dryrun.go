package session

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sampan-io/sampan/cli/resource"
	"github.com/sampan-io/sampan/cli/show"
)

// Say prints an object that a verb has written, in the chosen format; done is in a word
// the change of it.
func (g *Globals) Say(f show.Format, d DryRun, m resource.Mapping, obj *unstructured.Unstructured, done string) error {
	if !f.IsTable() {
		return f.Print(g.Out, m, obj)
	}
	name := obj.GetName()
	if name == "" {
		name = obj.GetGenerateName()
	}
	_, err := fmt.Fprintf(g.Out, "%s %s%s\n", m.Called(name), done, d.Note())
	return err
}

// A DryRun is "none", "client" or "server".
type DryRun string

// AddFlag gives a verb --dry-run; d is "none" until it is given.
func (d *DryRun) AddFlag(cmd *cobra.Command) {
	*d = "none"
	f := cmd.Flags().VarPF(d, "dry-run", "", "print what would be done without doing it: client sends nothing to the server, server has the server check the request")
	f.NoOptDefVal = "client"
}

// String implements pflag.Value.
func (d *DryRun) String() string { return string(*d) }

// Type implements pflag.Value.
func (d *DryRun) Type() string { return "none|client|server" }

// Set implements pflag.Value.
func (d *DryRun) Set(text string) error {
	switch text {
	case "none", "client", "server":
		*d = DryRun(text)
		return nil
	case "true":
		*d = "client"
		return nil
	case "false":
		*d = "none"
		return nil
	}
	return errors.New("must be none, client or server")
}

// Option returns the dryRun option of a request.
func (d DryRun) Option() []string {
	if d == "server" {
		return []string{metav1.DryRunAll}
	}
	return nil
}

// Note returns the end of the line about the change.
func (d DryRun) Note() string {
	switch d {
	case "client":
		return " (dry run)"
	case "server":
		return " (server dry run)"
	}
	return ""
}
