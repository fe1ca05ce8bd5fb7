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

	"github.com/sampan-io/sampan/cli/exit"
	"github.com/sampan-io/sampan/cli/session"
	"github.com/sampan-io/sampan/cli/simulation"
	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/plural"
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
		Use:   "explain pod/NAME | -f FILE",
		Short: "Where a pod would go or why nowhere, and what would have to change",
		Long: "Decide about a pod as the scheduler would at this moment, and say why: what each node is refused for, in numbers, how it\n" +
			"ranks, what would have to change for the pod to fit, and whether pre-emption could help. Nothing is changed.\n\n" +
			"With -f the pods need not exist: Deployments, ReplicaSets, StatefulSets, DaemonSets, Jobs and ReplicationControllers\n" +
			"stand for their pods, which are placed one after the other, beside all that run. A pod that runs is judged as\n" +
			"if it had to be placed anew. -o wide adds the score of each plug-in and all refusals of a node.\n\n" +
			"--config is the configuration of the pod's scheduler; without it the plug-ins are the default ones.\n\n" +
			"The exit code is 0 if the pods fit or run, 2 if one fits nowhere, 4 if there is no such pod.",
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
		return fmt.Errorf("-o %s: want json, yaml or wide, or leave it out for tables", v.Output)
	}
	switch {
	case v.in.Given() && len(args) > 0:
		return errors.New("name a pod, or give a file with -f or -k: not both")
	case !v.in.Given() && len(args) == 0:
		return errors.New("say which pod: pod/NAME, or a file with -f or -k")
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
	all, err := w.explainAll(ctx, pods, conf)
	if err != nil {
		return err
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
	case len(all) == 1:
		return exit.With(exit.Failed, fmt.Errorf("pod %s goes nowhere", stuck[0]))
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
		return nil, fmt.Errorf("%s: want one pod, as pod/NAME", strings.Join(args, " "))
	}
	if m := infos[0].Mapping; m.GroupVersionResource != client.Pods.GroupVersionResource {
		return nil, fmt.Errorf("%s: it is a %s, want a pod: pod/NAME, or a file with -f", infos[0], m.Kind)
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
	return scheduler.Profile{}, fmt.Errorf("spec.schedulerName is %q, want one that --config has a profile for: %s", name, strings.Join(known, ", "))
}
