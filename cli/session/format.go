package session

import (
	"github.com/spf13/pflag"

	"github.com/sampan-io/sampan/cli/show"
)

// PrintFlags gives a verb that prints objects the flags that kubectl has beside -o.
func (g *Globals) PrintFlags(f *pflag.FlagSet) {
	f.BoolVar(&g.managers, "show-managed-fields", false, "keep managedFields when printing objects in JSON or YAML")
	f.Var(goTemplate{}, "template", "not supported")
	_ = f.MarkHidden("template") // it exists
}

// Format reads -o and the flags of [Globals.PrintFlags].
func (g *Globals) Format() (show.Format, error) {
	f, err := show.Parse(g.Output)
	f.Managers = g.managers
	return f, err
}

// goTemplate is the value of --template, which kubectl has: its error says what to use instead.
type goTemplate struct{}

// String implements pflag.Value.
func (goTemplate) String() string { return "" }

// Type implements pflag.Value.
func (goTemplate) Type() string { return "string" }

// Set implements pflag.Value.
func (goTemplate) Set(string) error { return show.ErrGoTemplate }
