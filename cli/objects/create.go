package objects

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"runtime"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/cli/exit"
	"github.com/sampan-io/sampan/cli/manifest"
	"github.com/sampan-io/sampan/cli/resource"
	"github.com/sampan-io/sampan/cli/session"
	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/terminal"
)

// Create returns the verb create, with the verbs below it that make objects of flags.
func Create(g *session.Globals) *cobra.Command {
	c := creating(g)
	var raw string
	cmd := &cobra.Command{
		Use:   "create -f FILE | -k DIRECTORY",
		Short: "Create objects from files or standard input",
		Long: "Create objects from YAML or JSON files, directories, URLs, a kustomization, or from standard input with '-f -'. Files\n" +
			"may hold several documents and Lists of any size, which are read one at a time. An invalid document is reported, and\n" +
			"the other objects are still created.\n\n" +
			"The subcommands create objects of common kinds from flags. With --dry-run=client -o yaml they print a manifest to\n" +
			"start from, and need no cluster.",
		Example: "  sampan create -f web.yaml\n  cat web.yaml | sampan create -f -\n  sampan create configmap conf --from-literal=a=b",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("raw") {
				return c.raw(cmd, http.MethodPost, raw)
			}
			return c.fromFiles(cmd, args)
		},
	}
	c.files(cmd, "kubectl-create")
	f := cmd.Flags()
	f.StringVarP(&c.labels, "selector", "l", "", "create only the objects that match this label selector (a=b, a!=b, a in (b,c), a)")
	f.BoolVar(&c.edit, "edit", false, "edit each object before it is created, with $KUBE_EDITOR, $EDITOR or vi")
	f.BoolVar(&c.crlf, "windows-line-endings", runtime.GOOS == "windows", "with --edit: give the editor Windows line ends, the default on Windows")
	f.StringVar(&raw, "raw", "", "POST the file given with -f unchanged to this path of the server, and print the response")
	for _, form := range manifest.Forms() {
		cmd.AddCommand(formCommand(g, form))
	}
	cmd.AddCommand(tokenCommand(g))
	return cmd
}

// raw sends a file to a path on the server and prints the answer.
func (p *put) raw(cmd *cobra.Command, method, path string) error {
	file, err := p.in.File("--raw")
	switch {
	case !p.in.Given():
		err = errors.New("must specify one of -f and -k")
	case p.edit:
		err = errors.New("--raw and --edit are mutually exclusive")
	case p.labels != "":
		err = errors.New("--raw and --selector (-l) are mutually exclusive")
	case p.Output != "":
		err = errors.New("--raw and --output are mutually exclusive")
	}
	u, invalid := url.ParseRequestURI(path)
	if err == nil && invalid != nil {
		err = fmt.Errorf("--raw must be a valid URL path: %w", invalid)
	}
	if err != nil {
		return exit.Usage(cmd.CommandPath(), err)
	}
	body := io.NopCloser(p.In)
	if file != "-" {
		if body, err = os.Open(file); err != nil {
			return err
		}
	}
	defer body.Close()
	s, err := p.Connect()
	if err != nil {
		return err
	}
	answer, err := s.Do(cmd.Context(), client.RawRequest{
		Method: method, Path: u.Path, Query: u.Query(), Body: body, ContentType: "application/json", Accept: "application/json",
	})
	if err != nil {
		return err
	}
	_, err = io.Copy(terminal.Data(p.Out), answer.Body)
	return errors.Join(err, answer.Body.Close())
}

// formCommand returns the verb of a form, with those of the forms below it.
func formCommand(g *session.Globals, form manifest.Form) *cobra.Command {
	cmd := &cobra.Command{Use: form.Use, Short: form.Short, Aliases: form.Aliases}
	if len(form.Below) > 0 {
		cmd.Args = cobra.NoArgs
		var words []string
		for _, below := range form.Below {
			c := formCommand(g, below)
			cmd.AddCommand(c)
			words = append(words, c.Name())
		}
		cmd.RunE = func(cmd *cobra.Command, _ []string) error {
			return exit.Usage(cmd.CommandPath(), fmt.Errorf("must specify one of: %s", strings.Join(words, ", ")))
		}
		return cmd
	}
	c := creating(g)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		before := args
		if dash := cmd.ArgsLenAtDash(); form.Command && dash >= 0 {
			before = args[:dash]
		}
		if len(before) != 1 {
			return exit.Usage(cmd.CommandPath(), fmt.Errorf("exactly one NAME is required, got %d", len(before)))
		}
		if form.Connect != nil && (form.Online == nil || form.Online()) {
			s, err := c.Connect()
			if err != nil {
				return err
			}
			form.Connect(server(cmd.Context(), s))
		}
		obj, err := form.Object(args[0], args[len(before):])
		if refused, ok := errors.AsType[*manifest.ServerError](err); ok {
			return refused.Err
		}
		if err != nil {
			return exit.Usage(cmd.CommandPath(), err)
		}
		return c.made(cmd.Context(), form.Mapping, form.Failure, obj)
	}
	if form.Flags != nil {
		form.Flags(cmd.Flags())
	}
	for _, name := range form.Required {
		_ = cmd.MarkFlagRequired(name) // it exists
	}
	c.flags(cmd, "kubectl-create")
	return cmd
}

// server answers a form's questions by discovery.
func server(ctx context.Context, s *session.Session) manifest.Server {
	return manifest.Server{
		Warn: s.Warn,
		Resource: func(r schema.GroupResource) (schema.GroupResource, error) {
			m, err := s.Mapper.ByName(ctx, r.String())
			if _, ok := errors.AsType[*resource.NoTypeError](err); ok && r.Group != "" {
				err = fmt.Errorf("the server doesn't have a resource type %q in group %q", r.Resource, r.Group)
			}
			return m.GroupResource(), err
		},
		Objects: func(argument string) ([]client.Object, error) {
			infos, err := s.Infos(ctx, session.Input{}, []string{argument})
			if err != nil {
				return nil, err
			}
			typed, err := s.Typed()
			if err != nil {
				return nil, err
			}
			var objs []client.Object
			for _, info := range infos {
				if info.Selection {
					return nil, errors.New("from must be an existing cronjob")
				}
				obj, err := typed.Get(ctx, info.Mapping.GroupVersionResource, info.Namespace, info.Name, "")
				if err != nil {
					return nil, err
				}
				o, ok := obj.(client.Object)
				if !ok {
					return nil, fmt.Errorf("unknown object type %T", obj)
				}
				objs = append(objs, o)
			}
			return objs, nil
		},
	}
}
