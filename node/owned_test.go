package node_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/node/volumes"
)

// edit changes a pod in the API server.
func (r *rig) edit(name string, f func(*corev1.Pod)) {
	r.Helper()
	p := r.pod(name).DeepCopy()
	f(p)
	if _, err := client.Pods.Update(r.Context(), r.api, p, ""); err != nil {
		r.Fatal(err)
	}
	synctest.Wait()
}

// claimed is a pod with a local volume, a group and a volume that shows its labels.
func claimed(name string, gid int64) *corev1.Pod {
	return webPod(name, func(p *corev1.Pod) {
		p.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: &gid}
		p.Spec.Volumes = []corev1.Volume{
			{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}},
			{Name: "info", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{
				{Path: "labels", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels"}},
			}}}},
		}
		p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}, {Name: "info", MountPath: "/info"}}
	})
}

// TestVolumeIsGivenToItsGroupOnce has a local volume whose files a running pod has made its own.
func TestVolumeIsGivenToItsGroupOnce(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root gives files away")
	}
	root, disk := t.TempDir(), t.TempDir()
	t.Cleanup(func() {
		if err := volumes.Clean(root); err != nil {
			t.Error(err)
		}
	})
	key := filepath.Join(disk, "key")
	own := func() {
		t.Helper()
		if err := os.WriteFile(key, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(key, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(key, 4, 5); err != nil {
			t.Fatal(err)
		}
	}
	wantKept := func(after string) {
		t.Helper()
		info, err := os.Stat(key)
		if err != nil {
			t.Fatal(err)
		}
		if gid := info.Sys().(*syscall.Stat_t).Gid; info.Mode() != 0o600 || gid != 5 {
			t.Errorf("after %s the file has mode %v and group %d, want 0600 and 5", after, info.Mode(), gid)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.opts.RootDir = root
		r.api.Set(t, boundTo("data", "disk"), localDisk("disk", disk, "data"))
		stop := r.start()
		<-r.node.Ready()
		own()
		r.create(claimed("db", 4711))
		r.await("db", "ready", isReady)
		if info, err := os.Stat(key); err != nil || info.Mode() != 0o660 || info.Sys().(*syscall.Stat_t).Gid != 4711 {
			t.Errorf("the volume was not given to the group when it was mounted: %v", err)
		}

		own()
		r.edit("db", func(p *corev1.Pod) { p.Labels["role"] = "leader" })
		if got := r.read(r.mountOf("db", "/info").GetHostPath() + "/labels"); got != "app=\"web\"\nrole=\"leader\"" {
			t.Errorf("labels are %q", got)
		}
		wantKept("a change of labels")

		// Another pod of the node uses the volume, with another group.
		r.create(claimed("backup", 4712))
		r.await("backup", "ready", isReady)
		wantKept("the start of another pod")
		r.awaitEvent("The requested fsGroup is 4712, but the volume disk has GID 4711. The volume may not be shareable.")

		stop()
		r.opts.RootDir = root
		stop = r.start()
		<-r.node.Ready()
		synctest.Wait()
		wantKept("a restart of the agent")

		for _, name := range []string{"db", "backup"} {
			if err := client.Pods.Delete(t.Context(), r.api, "default", name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		r.create(claimed("next", 4712))
		r.await("next", "ready", isReady)
		if info, err := os.Stat(key); err != nil || info.Mode() != 0o660 || info.Sys().(*syscall.Stat_t).Gid != 4712 {
			t.Errorf("the volume was not given to the next pod: %v", err)
		}
		stop()
	})
}

// TestTokenIsRenewedBesideBrokenVolumes has a pod whose other volumes can't be made any more.
func TestTokenIsRenewedBesideBrokenVolumes(t *testing.T) {
	root, disk, host := t.TempDir(), t.TempDir(), t.TempDir()
	t.Cleanup(func() {
		if err := volumes.Clean(root); err != nil {
			t.Error(err)
		}
	})
	file := filepath.Join(host, "f")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.opts.RootDir = root
		api := &issuer{Server: r.api}
		r.opts.Client = api
		settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "settings"}, Data: map[string]string{"a": "1"}}
		r.api.Set(t, settings, boundTo("data", "disk"), localDisk("disk", disk, "data"))
		stop := r.start()
		defer func() { stop() }()
		<-r.node.Ready()
		hour := int64(3600)
		pod := claimed("web", 0)
		pod.Spec.Volumes = append(pod.Spec.Volumes,
			corev1.Volume{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}}},
			corev1.Volume{Name: "file", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: file, Type: new(corev1.HostPathFile)}}},
			corev1.Volume{Name: "token", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
				{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: &hour}},
			}}}},
		)
		for _, name := range []string{"config", "file", "token"} {
			pod.Spec.Containers[0].VolumeMounts = append(pod.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: name, MountPath: "/" + name})
		}
		r.create(pod)
		r.await("web", "ready", isReady)
		path := r.mountOf("web", "/token").GetHostPath() + "/token"
		first := r.read(path)

		claim := clienttest.Find(r.api, client.PersistentVolumeClaims, "default", "data").DeepCopy()
		now := metav1.Now()
		claim.DeletionTimestamp, claim.Finalizers = &now, []string{"kubernetes.io/pvc-protection"}
		r.api.Set(t, claim)
		if err := client.ConfigMaps.Delete(t.Context(), r.api, "default", "settings", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if r.read(path) == first {
			t.Error("the token was not renewed")
		}
		if issued := api.issued.Load(); issued != 2 {
			t.Errorf("%d tokens were issued in an hour, want 2", issued)
		}
		if _, err := os.Stat(file); err == nil {
			t.Error("the file of the host was made again")
		}
	})
}

// TestVolumesThatNoContainerUses has a volume that can't be made: it matters when a container uses it.
func TestVolumesThatNoContainerUses(t *testing.T) {
	root := t.TempDir()
	t.Cleanup(func() {
		if err := volumes.Clean(root); err != nil {
			t.Error(err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.opts.RootDir = root
		stop := r.start()
		defer func() { stop() }()
		<-r.node.Ready()
		made := filepath.Join(t.TempDir(), "made")
		r.create(webPod("web", func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{
				{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "none"}}}},
				{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: made, Type: new(corev1.HostPathDirectoryOrCreate)}}},
			}
		}))
		r.await("web", "ready", isReady)
		if _, err := os.Stat(made); err == nil {
			t.Error("a directory was made on the host that no container uses")
		}
		r.edit("web", func(p *corev1.Pod) {
			p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
				Name: "late", Image: "web:1", VolumeMounts: []corev1.VolumeMount{{Name: "host", MountPath: "/host"}},
			}}}
		})
		r.await("web", "running its ephemeral container", func(p *corev1.Pod) bool {
			return len(p.Status.EphemeralContainerStatuses) > 0 && p.Status.EphemeralContainerStatuses[0].State.Running != nil
		})
		if _, err := os.Stat(made); err != nil {
			t.Error(err)
		}
	})
}

// TestPartOfAVolumeThatIsNotThere has a subPath for a key that a ConfigMap does not have, or that is itself not there: the container gets an
// empty directory, which stays when the key appears.
func TestPartOfAVolumeThatIsNotThere(t *testing.T) {
	root := t.TempDir()
	t.Cleanup(func() {
		if err := volumes.Clean(root); err != nil {
			t.Error(err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.opts.RootDir = root
		settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "settings"}, Data: map[string]string{"a": "1"}}
		r.api.Set(t, settings)
		stop := r.start()
		defer func() { stop() }()
		<-r.node.Ready()
		r.create(webPod("web", func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{
				{Name: "there", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}}},
				{Name: "none", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "none", Optional: new(true)}}},
			}
			p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{
				{Name: "there", MountPath: "/there", SubPath: "x"}, {Name: "none", MountPath: "none", SubPath: "deep/x"},
			}
		}))
		r.await("web", "ready", isReady)
		for _, at := range []string{"/there", "/none"} {
			m := r.mountOf("web", at)
			if left, err := os.ReadDir(m.GetHostPath()); err != nil || len(left) > 0 || !m.GetReadonly() {
				t.Errorf("%s is %v with %v, %v; want an empty directory, read only", at, m, left, err)
			}
		}
		settings = settings.DeepCopy()
		settings.Data["x"], settings.Data["b"] = "2", "3"
		if _, err := client.ConfigMaps.Update(t.Context(), r.api, settings, ""); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if info, err := os.Stat(r.mountOf("web", "/there").GetHostPath()); err != nil || !info.IsDir() {
			t.Errorf("what the container has mounted is %v, %v", info, err)
		}
	})
}
