package objects

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/sampan-io/sampan/cli/resource"
	"github.com/sampan-io/sampan/cli/session"
	"github.com/sampan-io/sampan/cli/show"
	"github.com/sampan-io/sampan/internal/terminal"
)

const editHeader = `# Please edit the object below. Lines beginning with a '#' will be ignored,
# and an empty file will abort the edit. If an error occurs while saving this file will be
# reopened with the relevant failures.
#
`

// edited has the user edit an object, and then creates it. A file that cannot be read or has unknown fields is opened
// again, with the errors in it; one that is left as it was creates nothing. If the server refuses the object, the file
// is kept.
func (p *put) edited(ctx context.Context, s *session.Session, f show.Format, info resource.Info) error {
	original, err := yaml.Marshal(info.Object.Object)
	if err != nil {
		return err
	}
	text := original
	var wrong error
	for {
		file, after, err := p.openEditor(ctx, text, wrong)
		if err != nil {
			return errors.Join(err, p.keep(file))
		}
		switch after = withoutComments(after); {
		case wrong != nil && bytes.Equal(after, text):
			return errors.Join(errors.New("Edit cancelled, no valid changes were saved."), p.keep(file)) //nolint:revive,staticcheck // kubectl's words
		case wrong == nil && bytes.Equal(after, withoutComments(original)):
			_, _ = fmt.Fprintln(p.Err, "Edit cancelled, no changes made.")
			return os.Remove(file)
		case len(bytes.TrimSpace(after)) == 0:
			_, _ = fmt.Fprintln(p.Err, "Edit cancelled, saved file was empty.")
			return os.Remove(file)
		}
		infos, err := p.readEdited(ctx, s, file)
		if err == nil {
			var errs []error
			for _, i := range infos {
				errs = append(errs, p.one(ctx, s, f, i))
			}
			if err := errors.Join(errs...); err != nil {
				return errors.Join(err, p.keep(file))
			}
			return os.Remove(file)
		}
		text, wrong = after, err
		if err := os.Remove(file); err != nil {
			return err
		}
	}
}

// readEdited returns the objects of an edited file.
func (p *put) readEdited(ctx context.Context, s *session.Session, file string) (infos []resource.Info, err error) {
	for info, err := range resource.Stream(ctx, s.Mapper, s.OneFile(file)) {
		if err == nil {
			err = s.Check(ctx, p.validate, info)
		}
		if err != nil {
			return nil, err
		}
		infos = append(infos, info)
	}
	return infos, nil
}

// keep prints the name of the file that holds the unused changes.
func (p *put) keep(file string) error {
	if file != "" {
		_, _ = fmt.Fprintf(p.Err, "A copy of your changes has been stored to %q\n", file)
	}
	return nil
}

// openEditor writes a text into a file and returns it with its contents when the editor has ended.
func (p *put) openEditor(ctx context.Context, text []byte, wrong error) (file string, after []byte, err error) {
	tmp, err := os.CreateTemp("", "sampan-edit-*.yaml")
	if err != nil {
		return "", nil, err
	}
	all := editHeader
	if wrong != nil {
		all += "# " + strings.ReplaceAll(wrong.Error(), "\n", "\n# ") + "\n#\n"
	}
	if all += string(text); p.crlf {
		all = strings.ReplaceAll(all, "\n", "\r\n")
	}
	_, err = io.WriteString(tmp, all)
	if err = errors.Join(err, tmp.Close()); err != nil {
		return "", nil, errors.Join(err, os.Remove(tmp.Name()))
	}
	editor := cmp.Or(os.Getenv("KUBE_EDITOR"), os.Getenv("EDITOR"), "vi")
	words := append(strings.Fields(editor), tmp.Name())
	if strings.ContainsAny(editor, `"'\`) { // a shell knows better
		words = []string{cmp.Or(os.Getenv("SHELL"), "/bin/bash"), "-c", editor + " " + tmp.Name()}
	}
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)                                // the user's own editor
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, terminal.Raw(p.Out), terminal.Raw(p.Err) // not p.In, which would be read on by us as well
	if err := cmd.Run(); err != nil {
		return tmp.Name(), nil, fmt.Errorf("there was a problem with the editor %q: %w", editor, err)
	}
	after, err = os.ReadFile(tmp.Name())
	return tmp.Name(), bytes.ReplaceAll(after, []byte("\r\n"), []byte("\n")), err
}

// withoutComments returns a text without the lines that begin with a #.
func withoutComments(text []byte) []byte {
	var kept []byte
	for line := range bytes.Lines(text) {
		if !bytes.HasPrefix(line, []byte("#")) {
			kept = append(kept, line...)
		}
	}
	return kept
}
