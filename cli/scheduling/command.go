package scheduling

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/await"
	"github.com/sampan-io/sampan/cli/exit"
	"github.com/sampan-io/sampan/cli/session"
	"github.com/sampan-io/sampan/cli/simulation"
	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/plural"
	"github.com/sampan-io/sampan/internal/podstate"
	"github.com/sampan-io/sampan/scheduler"
	"github.com/sampan-io/sampan/scheduler/builtin"
	"github.com/sampan-io/sampan/scheduler/config"
)

// An explainVerb is the verb explain with its flags.
type explainVerb struct {
	*session.Globals
	in         session.Input
	configFile string
}

func explainCommand(g *session.Globals) *cobra.Command {
	v := &explainVerb{Globals: g}
	cmd := &cobra.Command{
		Use:   "explain pod/NAME | pod NAME | -f FILE",
		Short: "Explain where a pod would be scheduled, or why it does not fit",
		Long: "Schedule a pod as the scheduler would do now, and explain the decision: why nodes were rejected, how the others score,\n" +
			"the changes that would make the pod fit, and whether preemption would help. Nothing is changed.\n\n" +
			"With -f the pods need not exist: Deployments, ReplicaSets, StatefulSets, DaemonSets, Jobs and ReplicationControllers\n" +
			"are replaced by their pods, which are scheduled one after the other beside the running pods. A running pod is judged\n" +
			"as if it had to be scheduled again. -o wide adds the score of each plugin and every reason of a node.\n\n" +
			"--config is the configuration of the pod's scheduler; the default is the default plugins.\n\n" +
			"Exit codes: 0 all pods fit or run, 2 a pod does not fit any node, 4 the pod does not exist.",
		Example: "  sampan scheduler explain pod/web\n  sampan scheduler explain -f app.yaml -o wide",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := v.check(args); err != nil {
				return exit.Usage(cmd.CommandPath(), err)
			}
			return v.run(cmd.Context(), args)
		},
	}
	v.in.FileFlags(cmd.Flags())
	cmd.Flags().StringVar(&v.configFile, "config", "", "file with the KubeSchedulerConfiguration (kubescheduler.config.k8s.io/v1) of the pod's scheduler")
	return cmd
}

// check refuses what cannot be meant.
func (v *explainVerb) check(args []string) error {
	switch v.Output {
	case "", "wide", "json", "yaml":
	default:
		return fmt.Errorf("-o %s: must be json, yaml or wide; the default is tables", v.Output)
	}
	switch {
	case v.in.Given() && len(args) > 0:
		return errors.New("a pod name and -f or -k are mutually exclusive")
	case !v.in.Given() && len(args) == 0:
		return errors.New("must specify pod/NAME, or a file with -f or -k")
	case len(args) == 1 && !strings.Contains(args[0], "/"):
		return fmt.Errorf("%s: must be pod/NAME or pod NAME, or a file with -f or -k", args[0])
	}
	return nil
}

func (v *explainVerb) run(ctx context.Context, args []string) error {
	var conf *config.Config
	if v.configFile != "" {
		c, err := config.Load(v.configFile, config.Available{Default: builtin.Default()})
		if err != nil {
			return fmt.Errorf("--config: %w", err)
		}
		conf = &c
		v.Kubeconfig = cmp.Or(v.Kubeconfig, c.Kubeconfig)
	}
	s, err := v.Connect()
	if err != nil {
		return err
	}
	server, err := s.Typed()
	if err != nil {
		return err
	}
	var pods []simulation.Pod
	if len(args) > 0 {
		pod, err := named(ctx, s, server, args)
		if err != nil {
			return err
		}
		pods = []simulation.Pod{{Pod: pod}}
	}
	w, err := look(ctx, server, conf)
	if err != nil {
		return err
	}
	if v.in.Given() {
		var others []client.Object
		if pods, others, err = simulation.Pods(ctx, s, v.in, w.nodes); err != nil {
			return err
		}
		if err := w.expect(ctx, server, pods, others); err != nil {
			return err
		}
	}
	obstacle := ""
	if len(args) > 0 && !podstate.Finished(pods[0].Pod) && pods[0].DeletionTimestamp == nil {
		var without *corev1.Pod
		if obstacle, without = await.Obstacle(ctx, server, pods[0].Pod); without != nil {
			pods[0].Pod = without // what the scheduler would say without the obstacle
		}
	}
	all, err := w.explainAll(ctx, pods, conf)
	if err != nil {
		return err
	}
	if obstacle != "" {
		all[0].Obstacle = obstacle
	}
	if refused := server.RefusedWrites(ctx); refused != "" {
		for i := range all {
			all[i].RefusedWrites = refused
		}
	}
	if err := v.print(all); err != nil {
		return err
	}
	var stuck []string
	for _, e := range all {
		if e.stuck() {
			stuck = append(stuck, e.Namespace+"/"+e.Name)
		}
	}
	switch {
	case len(stuck) == 0:
		return nil
	case len(all) == 1 && all[0].Obstacle != "":
		return exit.With(exit.Failed, fmt.Errorf("pod %s waits for an object that it names", stuck[0]))
	case len(all) == 1:
		return exit.With(exit.Failed, fmt.Errorf("pod %s does not fit any node", stuck[0]))
	}
	return exit.With(exit.Failed, fmt.Errorf("%d of %s %s nowhere", len(stuck), plural.Count(len(all), "pod"), plural.Choose(len(stuck), "goes", "go")))
}

// named returns the pod that the arguments name.
func named(ctx context.Context, s *session.Session, server client.Interface, args []string) (*corev1.Pod, error) {
	infos, err := s.Infos(ctx, session.Input{}, args)
	if err != nil {
		return nil, err
	}
	if len(infos) != 1 || infos[0].Selection {
		return nil, fmt.Errorf("%s: must be one pod: pod/NAME or pod NAME", strings.Join(args, " "))
	}
	if m := infos[0].Mapping; m.GroupVersionResource != client.Pods.GroupVersionResource {
		return nil, fmt.Errorf("%s: is a %s, must be a pod: pod/NAME, or a file with -f", infos[0], m.Kind)
	}
	return client.Pods.Get(ctx, server, infos[0].Namespace, infos[0].Name)
}

// explainAll decides about one pod after the other; each counts where it goes when the next one is decided about.
func (w *world) explainAll(ctx context.Context, pods []simulation.Pod, conf *config.Config) ([]explanation, error) {
	judges := map[string]*judge{}
	all := make([]explanation, 0, len(pods))
	for _, p := range pods {
		name := p.Spec.SchedulerName
		j := judges[name]
		if j == nil {
			profile, err := profileOf(conf, name)
			if err != nil {
				return nil, fmt.Errorf("pod %s/%s: %w", p.Namespace, p.Name, err)
			}
			if j, err = newJudge(profile); err != nil {
				return nil, err
			}
			judges[name] = j
		}
		e, err := j.explain(ctx, &w.cluster, p.Pod)
		if err != nil {
			return nil, fmt.Errorf("pod %s/%s: %w", p.Namespace, p.Name, err)
		}
		e.Owner = p.Owner
		e.Unattended = e.On == nil && (!w.schedulers[name] || overlooked(p.Pod, time.Now()))
		if conf != nil {
			for _, x := range conf.Extenders {
				if x.Interested(p.Pod) {
					e.NotAsked = append(e.NotAsked, x.Name())
				}
			}
		}
		all = append(all, *e)
	}
	return all, nil
}

// profileOf returns the profile that pods of a scheduler name get. Without a configuration nothing is known of
// schedulers, and each has the default plug-ins.
func profileOf(conf *config.Config, name string) (scheduler.Profile, error) {
	if conf == nil {
		return scheduler.Profile{Name: name, Plugins: builtin.Default()}, nil
	}
	var known []string
	for _, p := range conf.Profiles {
		if p.Name == name {
			return p, nil
		}
		known = append(known, p.Name)
	}
	slices.Sort(known)
	return scheduler.Profile{}, fmt.Errorf("spec.schedulerName: must be a profile of --config (%[2]s), got %[1]q", name, strings.Join(known, ", "))
}
