package standalone

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sampan-io/sampan/scheduler/builtin"
	"github.com/sampan-io/sampan/scheduler/config"
	"github.com/sampan-io/sampan/scheduler/plugin"
)

// Main is the main function of a scheduler with additional plug-ins. It has flags like upstream's kube-scheduler, runs until
// SIGINT or SIGTERM, and returns the exit code. Without --config the plug-ins are enabled at all points that they implement;
// a --config can choose among all of them by name.
func Main(more ...plugin.Entry) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM) //nolint:forbidigo // it is a main function
	defer stop()
	return program(ctx, os.Args[1:], os.Stderr, more...)
}

func program(ctx context.Context, args []string, errs io.Writer, more ...plugin.Entry) int {
	o := Options{Plugins: config.Available{Default: builtin.Default().With(more...)}}
	var kubeconfig string
	var elect bool
	f := flag.NewFlagSet("scheduler", flag.ContinueOnError)
	f.SetOutput(errs)
	f.StringVar(&kubeconfig, "kubeconfig", "", "file that names the server; empty means that of the pod it runs in")
	f.StringVar(&o.ConfigFile, "config", "", "file with a KubeSchedulerConfiguration")
	f.StringVar(&o.Name, "scheduler-name", "", "schedulerName of the pods to place, without --config (default \"default-scheduler\")")
	f.BoolVar(&elect, "leader-elect", false, "work only while holding the lease kube-system/kube-scheduler")
	f.StringVar(&o.MetricsAddress, "metrics-bind-address", "", "address on which to serve /metrics, /livez and /readyz")
	f.StringVar(&o.CertFile, "tls-cert-file", "", "certificate of that server")
	f.StringVar(&o.KeyFile, "tls-private-key-file", "", "key of that server")
	if err := f.Parse(args); err != nil {
		return 2
	}
	if f.NArg() > 0 {
		_, _ = fmt.Fprintf(errs, "unexpected argument %q\n", f.Arg(0))
		return 2
	}
	f.Visit(func(f *flag.Flag) {
		if f.Name == "leader-elect" {
			o.LeaderElect = &elect
		}
	})
	o.Connect = func(named string) (*rest.Config, error) {
		if kubeconfig == "" {
			kubeconfig = named
		}
		return clientcmd.BuildConfigFromFlags("", kubeconfig)
	}
	if err := Run(ctx, o); err != nil {
		_, _ = fmt.Fprintln(errs, "error:", err)
		return 1
	}
	return 0
}
