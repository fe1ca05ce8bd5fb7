package resolvconf_test

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/sampan-io/sampan/internal/resolvconf"
)

func TestParse(t *testing.T) {
	tests := []struct {
		name, text string
		want       resolvconf.Config
		stub       bool
	}{
		{"nothing", "", resolvconf.Config{}, false},
		{
			"everything", "# c\nnameserver 127.0.0.53\nnameserver 192.0.2.53\nnameserver ::1\nsearch lan corp\noptions edns0 ndots:2\n",
			resolvconf.Config{Servers: []string{"192.0.2.53"}, Searches: []string{"lan", "corp"}, Options: []string{"edns0", "ndots:2"}},
			false,
		},
		{"a stub alone", "nameserver 127.0.0.53\noptions trust-ad\n", resolvconf.Config{Options: []string{"trust-ad"}}, true},
		{"the last search list counts, and a domain is one", "search a b\ndomain c\n", resolvconf.Config{Searches: []string{"c"}}, false},
		{"dots at the end", "search lan. . corp.\n", resolvconf.Config{Searches: []string{"lan", ".", "corp"}}, false},
		{"words without a value", "nameserver\nsearch\n", resolvconf.Config{}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, stub := resolvconf.Parse(tt.text)
			if !reflect.DeepEqual(got, tt.want) || stub != tt.stub {
				t.Errorf("Parse = %+v, %t, want %+v, %t", got, stub, tt.want, tt.stub)
			}
			file := filepath.Join(t.TempDir(), "resolv.conf")
			if err := os.WriteFile(file, []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
			if got := resolvconf.Read(file); !reflect.DeepEqual(got, tt.want) {
				t.Errorf("Read = %+v, want %+v", got, tt.want)
			}
		})
	}
	if got := resolvconf.Read(filepath.Join(t.TempDir(), "none")); !reflect.DeepEqual(got, resolvconf.Config{}) {
		t.Errorf("Read of a file that is not there = %+v, want nothing", got)
	}
}
