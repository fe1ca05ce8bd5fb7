package localdisk

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/internal/mounts"
	"github.com/sampan-io/sampan/internal/removal"
)

// agentPath is where agents serve the directories of volumes, each under its name.
const agentPath = "/sampan/volumes/"

// pathParameter is the parameter of a DELETE request: the path that the volume has.
const pathParameter = "path"

// A made is the answer of an agent that has made a directory.
type made struct {
	Path string `json:"path"` // absolute
}

// Handlers returns the part of a node's API by which the provisioner makes and removes the directories of volumes in root, which is
// an absolute path and need not exist. The keys are patterns of [http.ServeMux]. Both requests may be repeated.
//
//	PUT /sampan/volumes/NAME             makes the directory and returns its path
//	DELETE /sampan/volumes/NAME?path=…   removes the directory if it has that path, or had it before root was moved (D6);
//	                                     otherwise it is a conflict
//
// Errors are API status errors.
func Handlers(root string) map[string]http.Handler {
	d := directory(root)
	return map[string]http.Handler{
		"PUT " + agentPath + "{name}":    http.HandlerFunc(d.put),
		"DELETE " + agentPath + "{name}": http.HandlerFunc(d.delete),
	}
}

// A directory is the path of the directory of a node's volumes.
type directory string

// isName reports whether a name is that of a volume of this package: "pvc-" and a UID. It has no dots and no slashes.
func isName(name string) bool {
	uid, ok := strings.CutPrefix(name, prefix)
	return ok && len(uid) == 36 && strings.Trim(uid, "0123456789abcdef-") == ""
}

func (d directory) put(w http.ResponseWriter, r *http.Request) {
	path, err := d.path(r)
	if err == nil {
		err = makeDir(path)
	}
	if err != nil {
		refuse(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(made{path}) // a client that has gone asks again
}

func (d directory) delete(w http.ResponseWriter, r *http.Request) {
	path, err := d.path(r)
	if err == nil && d.find(filepath.Base(path), r.URL.Query().Get(pathParameter)) != path {
		err = failure(http.StatusConflict, metav1.StatusReasonConflict, fmt.Sprintf("the path of volume %q is not %q, the one below the directory of this provisioner", filepath.Base(path), path))
	}
	if err == nil {
		err = removeDir(path)
	}
	if err != nil {
		refuse(w, err)
	}
}

// path returns the path of the directory that a request names.
func (d directory) path(r *http.Request) (string, error) {
	name := r.PathValue("name")
	if !isName(name) {
		return "", apierrors.NewBadRequest(fmt.Sprintf("invalid name of a volume %q: want %q and a UID", name, prefix))
	}
	return filepath.Join(string(d), name), nil
}

// makeDir makes the directory of a volume. It follows no symbolic link in place of it.
func makeDir(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { // pods find their volumes in it
		return err
	}
	if err := os.Mkdir(path, 0o755); err != nil && !errors.Is(err, fs.ErrExist) { // see the last step
		return err
	}
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is not a directory", path)
	}
	return os.Chmod(path, 0o777) // containers run as any user
}

// removeDir removes the directory of a volume with all that is in it. It follows no symbolic link.
func removeDir(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.IsDir() {
		// A privileged pod may have mounted something in the volume.
		if err := mounts.UnmountBelow(path); err != nil {
			return err
		}
	}
	return removal.Tree(path)
}

func failure(code int32, reason metav1.StatusReason, message string) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message}}
}

// refuse answers with an error.
func refuse(w http.ResponseWriter, err error) {
	s, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok {
		s = apierrors.NewInternalError(err)
	}
	status := s.Status()
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(status.Code))
	_ = json.NewEncoder(w).Encode(status)
}
