package local

import (
	"slices"

	"github.com/sampan-io/sampan/controller/manager"
)

// Controllers says which controllers a cluster runs, as kube-controller-manager's flag of that name does: see
// [manager.Selection]. Empty means all. The scheduler, which is a program of its own upstream, can be turned off as well
// (-scheduler), and runs otherwise. It lets others work in the place of ours.
type Controllers string

const scheduler = "scheduler"

// Selection returns the selected controllers. A * selects those of bootstrap tokens as well, which upstream runs only if they
// are named: kubeadm names them.
func (c Controllers) Selection() manager.Selection {
	if c == "" {
		c = "*"
	}
	s := manager.Parse(string(c))
	if slices.Contains(s, "*") {
		s = append(s, manager.BootstrapSigner, manager.TokenCleaner)
	}
	return s
}

// RunsScheduler reports whether the cluster runs a scheduler.
func (c Controllers) RunsScheduler() bool {
	for _, word := range manager.Parse(string(c)) {
		switch word {
		case scheduler:
			return true
		case "-" + scheduler:
			return false
		}
	}
	return true
}

// check returns an error for each name that no controller has.
func (c Controllers) check() error { return manager.Parse(string(c)).Check(scheduler) }

// CheckAlone returns an error for each name that no controller has, for a program that never runs the scheduler.
func (c Controllers) CheckAlone() error { return manager.Parse(string(c)).Check() }

// String implements pflag.Value.
func (c *Controllers) String() string { return string(*c) }

// Set implements pflag.Value.
func (c *Controllers) Set(text string) error {
	*c = Controllers(text)
	return nil
}

// Type implements pflag.Value.
func (*Controllers) Type() string { return "names" }
