package local

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// ImageSettings say where a real node gets images and credentials from.
type ImageSettings struct {
	// Registries are directories in the layout of containerd's certs.d, separated by commas; empty means the default. They
	// hold from the next start of the container runtime on; their files are read at each pull.
	Registries string `json:"registries,omitempty"`

	// CredentialConfig is the path of a CredentialProviderConfig, or of a directory with such files, and CredentialPrograms
	// the directory of its plug-ins. They are read at each start.
	CredentialConfig   string `json:"credentialProviderConfig,omitempty"`
	CredentialPrograms string `json:"credentialProviderBinDir,omitempty"`
}

// NoImageSetting is the value of an image setting that takes an earlier one back.
const NoImageSetting = "none"

// with returns saved settings with those asked for this time.
func (s ImageSettings) with(asked ImageSettings) ImageSettings {
	choose := func(asked, saved string) string {
		if asked == NoImageSetting {
			return ""
		}
		return cmp.Or(asked, saved)
	}
	return ImageSettings{
		Registries:         choose(asked.Registries, s.Registries),
		CredentialConfig:   choose(asked.CredentialConfig, s.CredentialConfig),
		CredentialPrograms: choose(asked.CredentialPrograms, s.CredentialPrograms),
	}
}

// Settled returns the settings of a node that had none before, or an error for settings that contradict each other.
func (s ImageSettings) Settled() (ImageSettings, error) {
	settled := ImageSettings{}.with(s)
	return settled, settled.check()
}

// check returns an error for settings that contradict each other.
func (s ImageSettings) check() error {
	var errs []error
	if (s.CredentialConfig == "") != (s.CredentialPrograms == "") {
		errs = append(errs, errors.New("--image-credential-provider-config and --image-credential-provider-bin-dir must be set together"))
	}
	for dir := range strings.SplitSeq(s.Registries, ",") {
		if s.Registries != "" && !filepath.IsAbs(dir) {
			errs = append(errs, fmt.Errorf("--registries: must be absolute paths of directories, separated by commas, got %q", dir))
		}
	}
	return errors.Join(errs...)
}

// RegistryDirs returns the directories with the configuration of registries, separated by commas: those of the settings, or
// the cluster's own one and those of Sampan and containerd on this machine.
func (p Profile) RegistryDirs(s ImageSettings) string {
	return cmp.Or(s.Registries, filepath.Join(p.DataDir, "registries")+",/etc/sampan/certs.d,/etc/containerd/certs.d")
}
