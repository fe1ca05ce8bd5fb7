package static

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/internal/filewatch"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/internal/sorting"
	"github.com/sampan-io/sampan/node/references"
)

// Static pods come from the files of a directory. They run without the API server, which gets a mirror pod for each: a copy
// that shows the status, and whose deletion only makes the agent create another one. The worker of a static pod has the UID of
// the pod in the file, which is also the hash of the file. Files are read again when one of them changes; a pod whose file has
// changed is stopped, and started again when it has ended. So is one whose file is removed and put back: until it has ended, its
// mirror pod is not created again, and one that is left of the earlier run is replaced, because the API server does not let
// containers that have ended run again.
//
// A file without a valid pod is reported once, in the log and in an event of the node. The pod that it had before keeps running:
// files may be read while they are written.

// The annotations of static pods and their mirror pods, as upstream's kubelet has them.
const (
	configSource = "kubernetes.io/config.source"
	configHash   = "kubernetes.io/config.hash"
	configSeen   = "kubernetes.io/config.seen"
)

// maxManifest bounds a file of a static pod, in bytes.
const maxManifest = 1 << 20

// IsMirror reports whether a pod of the API server is the copy of a static pod.
func IsMirror(pod *corev1.Pod) bool {
	_, is := pod.Annotations[corev1.MirrorPodAnnotationKey]
	return is
}

// FromAPI returns a pod of the API server without the annotation by which the agent knows static pods.
func FromAPI(pod *corev1.Pod) *corev1.Pod {
	if pod == nil || !Is(pod) || IsMirror(pod) {
		return pod
	}
	out := *pod
	out.Annotations = maps.Clone(pod.Annotations)
	delete(out.Annotations, configSource)
	return &out
}

// RunOf returns the UID of the static pod whose copy a mirror pod is, as its annotations have it. Any user who may create pods can write
// them.
func RunOf(mirror *corev1.Pod) types.UID { return types.UID(mirror.Annotations[configHash]) }

// Is reports whether a pod comes from a file.
func Is(pod *corev1.Pod) bool { return pod.Annotations[configSource] == "file" }

// Reader reads the static pods of a directory.
type Reader struct {
	Dir  string
	Node string // name of the node
	// ReadPod decodes a manifest, see node.Options.
	ReadPod func(file string, data []byte, complete func(*corev1.Pod) error) (pod *corev1.Pod, ignored string, err error)
	// Found is called with all valid pods after each reading.
	Found func(map[types.NamespacedName]*corev1.Pod)
	// Event records an event about the node.
	Event func(kind, reason, format string, args ...any)
	Log   *slog.Logger
}

// Follow reads the files of the directory, and again when one of them changes, until ctx is cancelled. Read is called after the first
// reading.
func (r *Reader) Follow(ctx context.Context, read func()) {
	dir := r.Dir
	var files map[string]file
	for failures := 1; ctx.Err() == nil; failures++ {
		err := filewatch.Follow(ctx, []string{dir + "/"}, func() {
			files = r.read(dir, files)
			read()
		})
		if ctx.Err() != nil {
			return
		}
		if failures == 1 {
			r.Log.Warn("static pods can't be read, will try again", "directory", dir, "err", err)
		}
		read()
		run.Pause(ctx, run.Backoff{First: 20 * time.Millisecond, Max: 10 * time.Second}.Pause(failures))
	}
}

// A file is a file of a static pod.
type file struct {
	pod   *corev1.Pod // of the last valid version; nil if there was none
	fault string      // what is wrong with the newest version
}

// read reads all files of the directory, and returns what is in them by path; before is what it returned the last time.
func (r *Reader) read(dir string, before map[string]file) map[string]file {
	entries, err := os.ReadDir(dir)
	if err != nil {
		r.Log.Warn("static pods can't be read", "directory", dir, "err", err)
		return before
	}
	files := map[string]file{}
	var paths []string // with a pod; first the files that had a pod before, so that no new file takes the name of a running pod
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		var f file
		var ignored string
		err := run.Catch(func() (err error) {
			f.pod, ignored, err = r.pod(path)
			return err
		})
		if _, statErr := os.Lstat(path); errors.Is(err, fs.ErrNotExist) && errors.Is(statErr, fs.ErrNotExist) {
			continue // removed right now
		}
		old := before[path]
		switch {
		case err != nil:
			text := err.Error()
			if !strings.Contains(text, path) { // a panic
				text = path + ": " + text
			}
			f.fault, f.pod = "Error validating static pod: "+text, old.pod
			if f.pod != nil {
				f.fault += " (the pod of the last valid version keeps running)"
			}
		case ignored != "":
			f.fault = "Error validating static pod: " + ignored
		}
		files[path] = f
		if f.pod != nil {
			paths = append(paths, path)
		}
	}
	sorting.Stable(paths, func(a, b string) int { return cmp.Compare(age(before[a]), age(before[b])) })
	wanted := map[types.NamespacedName]*corev1.Pod{}
	from := map[types.NamespacedName]string{}
	for _, path := range paths {
		f := files[path]
		key := types.NamespacedName{Namespace: f.pod.Namespace, Name: f.pod.Name}
		if wanted[key] == nil {
			wanted[key], from[key] = f.pod, path
			continue
		}
		files[path] = file{fault: fmt.Sprintf("Error validating pod %s from %s due to duplicate pod name %q, ignoring: %s has that pod", key, path, f.pod.Name, from[key])}
	}
	for _, path := range slices.Sorted(maps.Keys(files)) {
		if f := files[path]; f.fault != "" && f.fault != before[path].fault {
			r.Log.Error("invalid static pod", "file", path, "err", f.fault)
			r.Event(corev1.EventTypeWarning, "FailedValidation", "%s", f.fault)
		}
	}
	r.Found(wanted)
	return files
}

// age is less for a file that had a pod before.
func age(before file) int {
	if before.pod != nil {
		return 0
	}
	return 1
}

// pod reads one file. Errors and ignored name it, see node.Options.
func (r *Reader) pod(path string) (pod *corev1.Pod, ignored string, err error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		if target, linkErr := os.Readlink(path); linkErr == nil {
			return nil, "", fmt.Errorf("%s: is a link to %s, which does not exist", path, target)
		}
	}
	if err != nil {
		return nil, "", err
	}
	switch {
	case info.IsDir():
		return nil, "", fmt.Errorf("%s: is a directory, in which no manifests are looked for", path)
	case !info.Mode().IsRegular():
		return nil, "", fmt.Errorf("%s: must be a regular file", path)
	case info.Size() > maxManifest:
		return nil, "", fmt.Errorf("%s: must have at most %d bytes, got %d", path, maxManifest, info.Size())
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, "", err
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%s", r.Node, path, data))
	pod, ignored, err = r.ReadPod(path, data, func(pod *corev1.Pod) error { return r.complete(pod, hex.EncodeToString(sum[:16])) })
	if err != nil {
		return nil, "", err
	}
	if kind := apiReference(pod); kind != "" {
		return nil, "", fmt.Errorf("%s: static pods may not reference %s", path, kind)
	}
	return pod, ignored, nil
}

// complete makes the pod of a file one of this node. The hash is that of the file. The error is a [field.Error].
func (r *Reader) complete(pod *corev1.Pod, hash string) error {
	if pod.Name == "" {
		return field.Required(field.NewPath("metadata", "name"), "name is needed for the pod")
	}
	pod.ObjectMeta = metav1.ObjectMeta{
		Name: pod.Name + "-" + r.Node, Namespace: cmp.Or(pod.Namespace, metav1.NamespaceDefault), UID: types.UID(hash),
		Labels: pod.Labels, Annotations: maps.Clone(pod.Annotations), Finalizers: pod.Finalizers,
	}
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	delete(pod.Annotations, corev1.MirrorPodAnnotationKey)
	pod.Annotations[configSource], pod.Annotations[configHash] = "file", hash
	pod.Annotations[configSeen] = time.Now().Format(time.RFC3339Nano)
	pod.Spec.NodeName = r.Node
	pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute})
	pod.Status = corev1.PodStatus{Phase: corev1.PodPending}
	return nil
}

// apiReference returns which objects of the API a pod refers to, in upstream's words; "" if there are none. Static pods have to
// run without the API server.
func apiReference(pod *corev1.Pod) string {
	refs := references.Named(pod)
	switch {
	case pod.Spec.ServiceAccountName != "" || pod.Spec.DeprecatedServiceAccount != "":
		return "serviceaccounts"
	case slices.ContainsFunc(refs, func(r references.Reference) bool { return r.Secret }):
		return "secrets"
	case len(refs) > 0:
		return "configmaps"
	case len(pod.Spec.ResourceClaims) > 0:
		return "resourceclaims"
	}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		switch {
		case v.CSI != nil:
			return "csidrivers (via CSI volumes)"
		case v.PersistentVolumeClaim != nil:
			return "persistentvolumeclaims"
		case v.Ephemeral != nil:
			return "persistentvolumeclaims (via ephemeral volumes)"
		case v.Projected == nil:
			continue
		}
		for _, s := range v.Projected.Sources {
			switch {
			case s.ServiceAccountToken != nil:
				return "serviceaccounts (via projected volumes)"
			case s.ClusterTrustBundle != nil:
				return "clustertrustbundles"
			case s.PodCertificate != nil:
				return "podcertificates"
			}
		}
	}
	return ""
}

// Pods are the static pods of a node at one moment.
type Pods struct {
	All      map[types.NamespacedName]*corev1.Pod // of the files
	Mirrored map[types.NamespacedName]*corev1.Pod // those for which a mirror pod is made: they do not end right now
	Outdated map[types.NamespacedName]types.UID   // mirror pods of earlier runs
}

// Mirrors keeps the mirror pods of a node.
type Mirrors struct {
	Node   string // name of the node
	Client client.Interface
	Pods   *cache.Cache[*corev1.Pod]  // those of the node
	Self   *cache.Cache[*corev1.Node] // the Node object
	Ready  <-chan struct{}            // closed when the Node object exists
	Wake   run.Bell                   // rung when mirror pods may have to be created or deleted
	Static func() Pods
	Log    *slog.Logger
}

// Run keeps one mirror pod in the API server for each static pod, until ctx is cancelled. It is started when the node's pods
// have been listed, and waits for the Node object, which owns mirror pods.
func (m *Mirrors) Run(ctx context.Context) {
	select {
	case <-m.Ready:
	case <-ctx.Done():
	}
	refused := map[types.NamespacedName]mirrorFailure{}
	for ctx.Err() == nil {
		next := m.sync(ctx, refused, time.Now())
		var alarm <-chan time.Time
		if !next.IsZero() {
			alarm = time.After(time.Until(next))
		}
		select {
		case <-m.Wake:
		case <-alarm:
		case <-ctx.Done():
		}
	}
}

// A mirrorFailure is a failure to write a mirror pod. The mirror pods of other static pods do not wait for it.
type mirrorFailure struct {
	failures int
	again    time.Time
	text     string
}

// sync creates and deletes mirror pods once. It returns when to try again what has failed; the zero time if nothing has.
func (m *Mirrors) sync(ctx context.Context, refused map[types.NamespacedName]mirrorFailure, now time.Time) (next time.Time) {
	pods := m.Static()
	wanted, static, outdated := pods.Mirrored, pods.All, pods.Outdated
	write := func(key types.NamespacedName, f func() error) {
		if again := m.write(ctx, refused, key, now, f); next.IsZero() || !again.IsZero() && again.Before(next) {
			next = again
		}
	}
	for _, pod := range m.Pods.List("") {
		key := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
		if !IsMirror(pod) {
			continue
		}
		if s := static[key]; s != nil && pod.Annotations[configHash] == string(s.UID) && pod.DeletionTimestamp == nil && outdated[key] != pod.UID {
			delete(wanted, key)
			continue
		}
		write(key, func() error {
			err := client.Pods.Delete(ctx, m.Client, key.Namespace, key.Name, metav1.DeleteOptions{
				GracePeriodSeconds: new(int64(0)), Preconditions: &metav1.Preconditions{UID: &pod.UID},
			})
			if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
				return nil
			}
			return err
		})
	}
	names := sorting.Sorted(maps.Keys(wanted), func(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) })
	for _, key := range names {
		write(key, func() error {
			_, err := client.Pods.Create(ctx, m.Client, m.mirrorOf(wanted[key]))
			if apierrors.IsAlreadyExists(err) {
				return nil
			}
			return err
		})
	}
	for key := range refused {
		if static[key] == nil {
			delete(refused, key)
		}
	}
	return next
}

// write calls f, which writes a mirror pod, unless it has failed and is not to be tried again yet. It returns when to
// try again; the zero time if f succeeded or ctx was cancelled.
func (m *Mirrors) write(ctx context.Context, refused map[types.NamespacedName]mirrorFailure, key types.NamespacedName, now time.Time, f func() error) time.Time {
	r := refused[key]
	if now.Before(r.again) {
		return r.again
	}
	err := f()
	if err == nil || ctx.Err() != nil {
		delete(refused, key)
		return time.Time{}
	}
	r.failures++
	r.again = now.Add(run.Backoff{First: 200 * time.Millisecond, Max: 15 * time.Second}.Pause(r.failures))
	if r.text != err.Error() {
		r.text = err.Error()
		m.Log.Warn("a mirror pod can't be written, will try again", "pod", key, "err", err)
	}
	refused[key] = r
	return r.again
}

// mirrorOf returns the mirror pod of a static pod. The node owns it.
func (m *Mirrors) mirrorOf(pod *corev1.Pod) *corev1.Pod {
	copied := pod.DeepCopy()
	copied.UID, copied.ResourceVersion = "", ""
	copied.Annotations[corev1.MirrorPodAnnotationKey] = copied.Annotations[configHash]
	if node, ok := m.Self.Get("", m.Node); ok {
		copied.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID, Controller: new(true)}}
	}
	return copied
}
