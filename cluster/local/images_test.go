package local

import (
	"strings"
	"testing"
)

func TestImageSettingsOfANewNode(t *testing.T) {
	for _, tt := range []struct {
		asked, want ImageSettings
		err         string
	}{
		{asked: ImageSettings{}},
		{asked: ImageSettings{Registries: "/a,/b"}, want: ImageSettings{Registries: "/a,/b"}},
		{asked: ImageSettings{Registries: NoImageSetting, CredentialConfig: NoImageSetting}},
		{asked: ImageSettings{Registries: "/a,b"}, err: `--registries: must be absolute paths of directories, separated by commas, got "b"`},
		{asked: ImageSettings{CredentialConfig: "/c"}, err: "must be set together"},
	} {
		got, err := tt.asked.Settled()
		switch {
		case tt.err == "" && (err != nil || got != tt.want):
			t.Errorf("%+v: got %+v, %v, want %+v", tt.asked, got, err, tt.want)
		case tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)):
			t.Errorf("%+v: got %v, want %s", tt.asked, err, tt.err)
		}
	}
}
