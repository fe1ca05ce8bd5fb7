package container

import (
	"os"
	"strings"
)

// AppArmor reports whether the kernel enforces AppArmor profiles.
func AppArmor() bool {
	b, err := os.ReadFile("/sys/module/apparmor/parameters/enabled")
	return err == nil && strings.HasPrefix(string(b), "Y")
}
