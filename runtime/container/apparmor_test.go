package container

import (
	"os/exec"
	"testing"
)

func TestDefaultAppArmorProfileParses(t *testing.T) {
	if _, err := exec.LookPath("apparmor_parser"); err != nil {
		t.Skip("needs Debian's package apparmor")
	}
	if err := parseAppArmor(t.Context(), "--skip-kernel-load", "--skip-cache"); err != nil {
		t.Error(err)
	}
}

func TestLoadedProfilesAreFound(t *testing.T) {
	const list = "docker-default (enforce)\nsampan-default-2 (enforce)\n/usr/bin/man (complain)\n"
	if hasProfile(list, DefaultAppArmor) || !hasProfile(list, "docker-default") || hasProfile("", DefaultAppArmor) {
		t.Error("the list is read wrongly")
	}
	if !hasProfile(list+"sampan-default (complain)\n", DefaultAppArmor) {
		t.Error("the default profile is not found")
	}
}
