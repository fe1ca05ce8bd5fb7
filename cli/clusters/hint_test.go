package clusters

import (
	"testing"

	"github.com/spf13/cobra"
)

func TestHintsNameTheClusterThatWasNamed(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{nil, "`sampan up`"},
		{[]string{"--name=a", "--data-dir=/d"}, "`sampan up --name=a --data-dir=/d`"},
	} {
		root := &cobra.Command{Use: "sampan"}
		root.PersistentFlags().String("name", "sampan", "")
		root.PersistentFlags().String("data-dir", "", "")
		got := ""
		root.AddCommand(&cobra.Command{Use: "status", Run: func(cmd *cobra.Command, _ []string) { got = hint(cmd, "up") }})
		root.SetArgs(append([]string{"status"}, tt.args...))
		if err := root.Execute(); err != nil || got != tt.want {
			t.Errorf("%v: %s, %v, want %s", tt.args, got, err, tt.want)
		}
	}
}
