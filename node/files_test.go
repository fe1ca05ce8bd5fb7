package node_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/moby/sys/mountinfo"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/node/blockdevice/blockdevicetest"
	"github.com/sampan-io/sampan/node/volumes"
	"github.com/sampan-io/sampan/simulation/simulated"
)

// issuer is an API server that also issues tokens.
type issuer struct {
	*clienttest.Server
	issued atomic.Int64
}

func (i *issuer) Create(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, obj runtime.Object, opts metav1.CreateOptions, subresource string) (runtime.Object, error) {
	if subresource != "token" {
		return i.Server.Create(ctx, gvr, namespace, name, obj, opts, subresource)
	}
	r := obj.DeepCopyObject().(*authenticationv1.TokenRequest)
	now := time.Now()
	claims := fmt.Sprintf(`{"iat":%d,"exp":%d,"n":%d,"sa":%q,"pod":%q}`, now.Unix(), now.Unix()+*r.Spec.ExpirationSeconds, i.issued.Add(1), name, r.Spec.BoundObjectRef.Name)
	r.Status.Token = "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".sig"
	return r, nil
}

// mountOf returns what is mounted at a path in the pod's container.
func (r *rig) mountOf(pod, path string) *cri.Mount {
	r.Helper()
	p := r.pod(pod)
	s, err := r.rt.ContainerStatus(r.Context(), strings.TrimPrefix(p.Status.ContainerStatuses[0].ContainerID, "simulated://"))
	if err != nil {
		r.Fatal(err)
	}
	for _, m := range s.GetMounts() {
		if m.GetContainerPath() == path {
			return m
		}
	}
	r.Fatalf("nothing is mounted at %s of %s, only %v", path, pod, s.GetMounts())
	return nil
}

func (r *rig) read(path string) string {
	r.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		r.Fatal(err)
	}
	return string(b)
}

func TestVolumes(t *testing.T) {
	root := t.TempDir()
	t.Cleanup(func() {
		if err := volumes.Clean(root); err != nil {
			t.Error(err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.opts.RootDir = root
		api := &issuer{Server: r.api}
		r.opts.Client = api
		settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "settings"}, Data: map[string]string{"a": "1", "b": "2", "d": "4"}}
		r.api.Set(t, settings, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "key"}, Data: map[string][]byte{"k": []byte("hidden")}})
		stop := r.start()
		<-r.node.Ready()
		hour, mode, yes := int64(3600), int32(0o400), true
		size := resource.MustParse("1Mi")
		r.create(webPod("web", func(p *corev1.Pod) {
			p.Annotations = map[string]string{"note": "n"}
			p.Spec.HostAliases = []corev1.HostAlias{{IP: "192.0.2.7", Hostnames: []string{"db", "db.local"}}}
			p.Spec.ServiceAccountName = "robot"
			ref := corev1.LocalObjectReference{Name: "settings"}
			p.Spec.Volumes = []corev1.Volume{
				{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: ref, Items: []corev1.KeyToPath{{Key: "a", Path: "deep/a.txt", Mode: &mode}}}}},
				{Name: "maybe", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "none"}, Optional: &yes}}},
				{Name: "secret", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "key"}}},
				{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
				{Name: "fast", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory, SizeLimit: &size}}},
				{Name: "all", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
					{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: &hour}},
					{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: ref}},
					{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{Path: "labels", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels"}}}}},
				}}}},
			}
			p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{
				{Name: "config", MountPath: "/config"},
				{Name: "maybe", MountPath: "/maybe"},
				{Name: "secret", MountPath: "/secret"},
				{Name: "scratch", MountPath: "/scratch"},
				{Name: "scratch", MountPath: "/part", SubPath: "inner/dir"},
				{Name: "all", MountPath: "/one", SubPath: "b"},
				{Name: "fast", MountPath: "/fast"},
				{Name: "all", MountPath: "/all"},
			}
			p.Spec.Containers[0].TerminationMessagePath = "/dev/termination-log"
		}))
		p := r.await("web", "ready", isReady)

		config := r.mountOf("web", "/config")
		if !config.GetReadonly() || r.read(config.GetHostPath()+"/deep/a.txt") != "1" {
			t.Errorf("config volume is %v", config)
		}
		if info, err := os.Stat(config.GetHostPath() + "/deep/a.txt"); err != nil || info.Mode().Perm() != 0o400 {
			t.Errorf("mode of the file is %v, %v", info, err)
		}
		if left, err := os.ReadDir(r.mountOf("web", "/maybe").GetHostPath()); err != nil || len(left) > 2 { // the data directory and its link
			t.Errorf("the optional volume has %v, %v", left, err)
		}
		secret := r.mountOf("web", "/secret").GetHostPath()
		if r.read(secret+"/k") != "hidden" || !strings.HasPrefix(secret, filepath.Join(root, "memory")) {
			t.Errorf("the secret is at %s", secret)
		}
		if mounted, err := mountinfo.Mounted(filepath.Join(root, "memory")); err != nil || !mounted {
			t.Errorf("secrets are not in memory: %v %v", mounted, err)
		}
		scratch := r.mountOf("web", "/scratch")
		if info, err := os.Stat(scratch.GetHostPath()); err != nil || scratch.GetReadonly() || info.Mode().Perm() != 0o777 {
			t.Errorf("emptyDir is %v %v", info, err)
		}
		part := r.mountOf("web", "/part").GetHostPath()
		if err := os.WriteFile(part+"/f", []byte("x"), 0o600); err != nil || r.read(scratch.GetHostPath()+"/inner/dir/f") != "x" {
			t.Errorf("subPath is not a part of its volume: %v", err)
		}
		if got := r.read(r.mountOf("web", "/one").GetHostPath()); got != "2" {
			t.Errorf("subPath of a file has %q", got)
		}
		if mounted, err := mountinfo.Mounted(r.mountOf("web", "/fast").GetHostPath()); err != nil || !mounted {
			t.Errorf("emptyDir in memory is not mounted: %v %v", mounted, err)
		}
		all := r.mountOf("web", "/all").GetHostPath()
		if got := r.read(all + "/labels"); got != `app="web"` {
			t.Errorf("labels are %q", got)
		}
		token := r.read(all + "/token")
		if hosts := r.read(r.mountOf("web", "/etc/hosts").GetHostPath()); !strings.Contains(hosts, p.Status.PodIP+"\tweb\n") || !strings.Contains(hosts, "192.0.2.7\tdb\tdb.local\n") {
			t.Errorf("hosts are:\n%s", hosts)
		}

		// A change arrives in whole, and only where it belongs.
		changed := settings.DeepCopy()
		changed.Data = map[string]string{"a": "one", "b": "2", "c": "3"}
		if _, err := client.ConfigMaps.Update(t.Context(), r.api, changed, ""); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := r.read(config.GetHostPath()+"/deep/a.txt") + r.read(all+"/c"); got != "one3" {
			t.Errorf("after the change the volumes have %q", got)
		}
		if _, err := os.Lstat(all + "/d"); !os.IsNotExist(err) {
			t.Errorf("the key that went is still there: %v", err)
		}
		if r.read(all+"/token") != token {
			t.Error("a change of a config map replaced the token")
		}

		// A restarted agent keeps the token, and renews it in its time.
		stop()
		stop = r.start()
		time.Sleep(47 * time.Minute)
		synctest.Wait()
		if r.read(all+"/token") != token || api.issued.Load() != 1 {
			t.Errorf("the token was renewed early: %d were issued", api.issued.Load())
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if r.read(all+"/token") == token {
			t.Error("the token was not renewed after 80 % of its life")
		}

		// The container's termination message is reported.
		words := r.mountOf("web", "/dev/termination-log").GetHostPath()
		if err := os.WriteFile(words, []byte("out of luck"), 0o600); err != nil {
			t.Fatal(err)
		}
		r.rt.Exit("default", "web", "web", 1)
		p = r.await("web", "restarted", func(p *corev1.Pod) bool { return p.Status.ContainerStatuses[0].RestartCount == 1 })
		if last := p.Status.ContainerStatuses[0].LastTerminationState.Terminated; last == nil || last.Message != "out of luck" {
			t.Errorf("last words are %+v", last)
		}

		if err := client.Pods.Delete(t.Context(), r.api, "default", "web", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		r.await("web", "gone", gone)
		synctest.Wait()
		mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(root))
		if err != nil || len(mounts) != 1 {
			t.Errorf("mounts left: %v %v", mounts, err)
		}
		for _, dir := range []string{"pods", "memory"} {
			if left, err := os.ReadDir(filepath.Join(root, dir)); err != nil || len(left) != 0 {
				t.Errorf("left in %s: %v %v", dir, left, err)
			}
		}
		stop()
	})
}

// mountsAt returns how many mounts there are at or below a directory.
func (r *rig) mountsAt(dir string) int {
	r.Helper()
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	if err != nil {
		r.Fatal(err)
	}
	return len(mounts)
}

func TestPartsOfVolumesAreMountedOnce(t *testing.T) {
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
			p.Spec.Volumes = []corev1.Volume{{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}}}}
			p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{
				{Name: "config", MountPath: "/a", SubPath: "a"},
				{Name: "config", MountPath: "/b", SubPathExpr: "$(B)"},
			}
			p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "B", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}, Key: "name", Optional: new(true),
			}}}}
			p.Spec.Containers[0].TerminationMessagePath = "/dev/termination-log"
		}))
		r.await("web", "waiting", waits("CreateContainerConfigError"))
		time.Sleep(time.Minute) // some more tries
		settings = settings.DeepCopy()
		settings.Data["b"], settings.Data["name"] = "2", "b"
		if _, err := client.ConfigMaps.Update(t.Context(), r.api, settings, ""); err != nil {
			t.Fatal(err)
		}
		p := r.await("web", "ready", isReady)
		a := r.mountOf("web", "/a").GetHostPath()
		if n := r.mountsAt(a); n != 1 {
			t.Errorf("%d mounts at %s after some tries, want 1", n, a)
		}
		if got := r.read(a) + r.read(r.mountOf("web", "/b").GetHostPath()); got != "12" {
			t.Errorf("the parts hold %q, want 12: a try destroyed what an earlier one had mounted", got)
		}

		for restarts := range int32(4) {
			r.rt.Exit("default", "web", "web", 1)
			time.Sleep(time.Minute) // longer than the back-off becomes
			p = r.await("web", "restarted", func(p *corev1.Pod) bool {
				return p.Status.ContainerStatuses[0].RestartCount == restarts+1 && isReady(p)
			})
		}
		synctest.Wait()
		dir := filepath.Join(root, "pods", string(p.UID))
		const kept = 2 // attempts: the one that runs, and the one whose log can still be read
		if n := r.mountsAt(filepath.Join(dir, "parts")); n > kept*2 {
			t.Errorf("%d mounts of parts after four restarts, want at most %d", n, kept*2)
		}
		for _, sub := range []string{"parts", "last/web"} {
			if left, err := os.ReadDir(filepath.Join(dir, sub)); err != nil || len(left) > kept*2 {
				t.Errorf("%s has %v, %v after four restarts, want what two attempts need", sub, left, err)
			}
		}
		if got := r.read(r.mountOf("web", "/a").GetHostPath()); got != "1" {
			t.Errorf("after restarts the part holds %q", got)
		}
	})
}

func TestVolumeThatCannotBeMountedIsReported(t *testing.T) {
	for _, tt := range []struct {
		name   string
		source corev1.VolumeSource
		want   string
	}{
		{"a directory that is not there", corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/no/such", Type: new(corev1.HostPathDirectory)}}, `volume "h" : hostPath type check failed: /no/such is not a directory`},
		{"a directory that is none", corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/proc/version", Type: new(corev1.HostPathDirectoryOrCreate)}}, `hostPath type check failed: /proc/version is not a directory`},
		{"claim", corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}, `volume "h" : error processing PVC default/data: PVC is not bound`},
		{"lost claim", corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "lost"}}, `error processing PVC default/lost: failed to fetch PV gone from API server`},
		{"claim of another's disk", corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "theirs"}}, `error processing PVC default/theirs: PV disk is bound to another claim`},
		{"ephemeral", corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}, `volume "h" : error processing PVC default/web-h: failed to fetch PVC from API server`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			t.Cleanup(func() {
				if err := volumes.Clean(root); err != nil {
					t.Error(err)
				}
			})
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.opts.RootDir = root
				r.api.Set(t, boundTo("data", ""), boundTo("lost", "gone"), boundTo("theirs", "disk"), localDisk("disk", "/x", "another"))
				stop := r.start()
				<-r.node.Ready()
				r.create(webPod("web", func(p *corev1.Pod) {
					p.Spec.Volumes = []corev1.Volume{{Name: "h", VolumeSource: tt.source}}
					p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "h", MountPath: "/h"}}
				}))
				r.await("web", "waiting", waits("ContainerCreating"))
				synctest.Wait()
				if e := r.events(); len(e) != 1 || e[0].Reason != "FailedMount" || !strings.Contains(e[0].Message, tt.want) {
					t.Errorf("events are %v, want one of %q", e, tt.want)
				}
				stop()
			})
		})
	}
}

func boundTo(name, volume string) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}}
	if c.Spec.VolumeName = volume; volume != "" {
		c.Status.Phase = corev1.ClaimBound
	}
	return c
}

func localDisk(name, path string, claim types.UID) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{
		PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: path}},
		ClaimRef:               &corev1.ObjectReference{Namespace: "default", Name: string(claim), UID: claim},
	}}
}

// TestHostedVolumes has volumes that lie where the node has them. They stay when the pod goes.
func TestHostedVolumes(t *testing.T) {
	root, host := t.TempDir(), t.TempDir()
	disk := filepath.Join(host, "disk")
	if err := os.MkdirAll(filepath.Join(disk, "part"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := volumes.Clean(root); err != nil {
			t.Error(err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.opts.RootDir = root
		r.opts.LocalVolume = func(pv *corev1.PersistentVolume) string { // the directory was moved
			return strings.Replace(pv.Spec.Local.Path, "/before/", host+"/", 1)
		}
		r.api.Set(t, boundTo("data", "disk"), localDisk("disk", "/before/disk", "data"))
		stop := r.start()
		<-r.node.Ready()
		r.create(webPod("web", func(p *corev1.Pod) {
			p.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: new(int64(4711))}
			data := corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}
			read := data
			read.ReadOnly = true
			p.Spec.Volumes = []corev1.Volume{
				{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &data}},
				{Name: "read", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &read}},
				{Name: "made", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: host + "/a/b", Type: new(corev1.HostPathDirectoryOrCreate)}}},
				{Name: "file", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: host + "/f", Type: new(corev1.HostPathFileOrCreate)}}},
			}
			p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{
				{Name: "data", MountPath: "/data"},
				{Name: "data", MountPath: "/part", SubPath: "part"},
				{Name: "read", MountPath: "/read"},
				{Name: "made", MountPath: "/made"},
				{Name: "file", MountPath: "/file"},
			}
		}))
		r.await("web", "running", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning })
		for at, want := range map[string]string{"/data": disk, "/read": disk, "/made": host + "/a/b", "/file": host + "/f"} {
			if m := r.mountOf("web", at); m.GetHostPath() != want || m.GetReadonly() != (at == "/read") {
				t.Errorf("%s is %s, read only %v; want %s", at, m.GetHostPath(), m.GetReadonly(), want)
			}
		}
		if err := os.WriteFile(r.mountOf("web", "/part").GetHostPath()+"/x", []byte("kept"), 0o600); err != nil {
			t.Error(err)
		}
		if info, err := os.Stat(disk); err != nil || info.Sys().(*syscall.Stat_t).Gid != 4711 {
			t.Errorf("the disk is not the group's: %v", err)
		}
		if err := client.Pods.Delete(t.Context(), r.api, "default", "web", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := r.read(disk + "/part/x"); got != "kept" {
			t.Errorf("what was written is %q", got)
		}
		if left, err := os.ReadDir(filepath.Join(root, "pods")); err != nil || len(left) > 0 {
			t.Errorf("files of the pod are left: %v %v", left, err)
		}
		stop()
	})
}

// TestLocalDiskKeepsItsFiles has a block device without a file system, which two pods use one after the other.
func TestLocalDiskKeepsItsFiles(t *testing.T) {
	root := t.TempDir()
	t.Cleanup(func() {
		if err := volumes.Clean(root); err != nil {
			t.Error(err)
		}
	})
	device, _ := blockdevicetest.New(t)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.opts.RootDir = root
		disk := localDisk("disk", device, "data")
		disk.Spec.MountOptions = []string{"noatime"}
		disk.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("16Mi")} // more than the claim says
		r.api.Set(t, boundTo("data", "disk"), disk)
		stop := r.start()
		<-r.node.Ready()
		for _, name := range []string{"first", "second"} {
			r.create(webPod(name, func(p *corev1.Pod) {
				p.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: new(int64(4711))}
				p.Spec.Volumes = []corev1.Volume{
					{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}},
				}
				p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
			}))
			r.await(name, "running", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning })
			path := r.mountOf(name, "/data").GetHostPath()
			infos, err := mountinfo.GetMounts(mountinfo.SingleEntryFilter(path))
			if err != nil || len(infos) != 1 || infos[0].FSType != "ext4" || !strings.Contains(infos[0].Options, "noatime") {
				t.Fatalf("mounted at %s is %+v, %v; want ext4 with noatime", path, infos, err)
			}
			if info, err := os.Stat(path); err != nil || info.Sys().(*syscall.Stat_t).Gid != 4711 {
				t.Errorf("the disk is not the group's: %v", err)
			}
			claim := clienttest.Find(r.api, client.PersistentVolumeClaims, "default", "data")
			if size := claim.Status.Capacity[corev1.ResourceStorage]; size.String() != "16Mi" {
				t.Errorf("the claim has %s, want the size of the expanded volume", size.String())
			}
			if name == "first" {
				r.awaitEvent("MountVolume.NodeExpandVolume succeeded for volume \"disk\"")
				if err := os.WriteFile(path+"/x", []byte("kept"), 0o600); err != nil {
					t.Error(err)
				}
			} else if got := r.read(path + "/x"); got != "kept" {
				t.Errorf("what was written is %q", got)
			}
			if err := client.Pods.Delete(t.Context(), r.api, "default", name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			if mounted, err := mountinfo.GetMounts(mountinfo.PrefixFilter(filepath.Join(root, "pods"))); err != nil || len(mounted) > 0 {
				t.Errorf("%v is mounted after the end of the pod, %v", mounted, err)
			}
		}
		stop()
	})
}

// TestEndedPodKeepsNoVolumes has a pod that ends with its object staying, as those of Jobs do. The agent ends right then, and the
// next one cleans up.
func TestEndedPodKeepsNoVolumes(t *testing.T) {
	root := t.TempDir()
	t.Cleanup(func() {
		if err := volumes.Clean(root); err != nil {
			t.Error(err)
		}
	})
	logs := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.opts.RootDir, r.opts.LogDir = root, logs
		r.api.Set(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "key"}, Data: map[string][]byte{"k": []byte("hidden")}})
		stop := r.start()
		<-r.node.Ready()
		p := r.create(webPod("build", func(p *corev1.Pod) {
			p.Spec.RestartPolicy = corev1.RestartPolicyNever
			p.Annotations = map[string]string{simulated.RunSeconds: "10"}
			p.Spec.Volumes = []corev1.Volume{
				{Name: "disk", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
				{Name: "memory", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}},
				{Name: "key", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "key"}}},
			}
			p.Spec.Containers[0].TerminationMessagePath = "/dev/termination-log"
			p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{
				{Name: "disk", MountPath: "/disk", SubPath: "part"}, {Name: "memory", MountPath: "/memory"}, {Name: "key", MountPath: "/key"},
			}
		}))
		r.await("build", "running", inPhase(corev1.PodRunning))
		own := filepath.Join(root, "pods", string(p.UID))
		volumes := []string{filepath.Join(own, "volumes"), filepath.Join(own, "parts"), filepath.Join(root, "memory", string(p.UID))}
		for _, dir := range volumes {
			if _, err := os.Stat(dir); err != nil {
				t.Errorf("while the pod runs: %v", err)
			}
		}
		left := r.mountsAt(own)
		r.await("build", "succeeded", inPhase(corev1.PodSucceeded))
		synctest.Wait()
		for _, dir := range volumes {
			if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s is there after the end of the pod: %v", dir, err)
			}
		}
		if now := r.mountsAt(own); left != 2 || now != 0 {
			t.Errorf("the pod had %d mounts, want 2, and has %d after its end, want none", left, now)
		}
		for _, path := range []string{filepath.Join(own, "hosts"), filepath.Join(own, "last", "web", "0"), filepath.Join(logs, "default_build_"+string(p.UID), "web")} {
			if _, err := os.Stat(path); err != nil {
				t.Errorf("after the end of the pod: %v", err)
			}
		}
		// What an agent could not remove any more, the next one does.
		stop()
		if err := os.MkdirAll(filepath.Join(volumes[0], "disk"), 0o700); err != nil {
			t.Fatal(err)
		}
		stop = r.start()
		<-r.node.Ready()
		synctest.Wait()
		if _, err := os.Stat(volumes[0]); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is there after the next agent has started: %v", volumes[0], err)
		}
		if r.pod("build") == nil {
			t.Error("the pod was deleted")
		}
		stop()
	})
}

func TestVolumesFollowFieldsOfThePod(t *testing.T) {
	root := t.TempDir()
	t.Cleanup(func() {
		if err := volumes.Clean(root); err != nil {
			t.Error(err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.opts.RootDir = root
		api := &issuer{Server: r.api}
		r.opts.Client = api
		stop := r.start()
		defer stop()
		<-r.node.Ready()
		field := func(path string) []corev1.DownwardAPIVolumeFile {
			return []corev1.DownwardAPIVolumeFile{{Path: "text", FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}
		}
		hour := int64(3600)
		r.create(webPod("web", func(p *corev1.Pod) {
			p.Annotations = map[string]string{"note": "one"}
			p.Spec.Volumes = []corev1.Volume{
				{Name: "labels", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: field("metadata.labels")}}},
				{Name: "notes", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
					{DownwardAPI: &corev1.DownwardAPIProjection{Items: field("metadata.annotations['note']")}},
					{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: &hour}},
				}}}},
			}
			p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "labels", MountPath: "/labels"}, {Name: "notes", MountPath: "/notes"}}
		}))
		r.await("web", "ready", isReady)
		want := func(labels, note string) {
			t.Helper()
			synctest.Wait()
			if got := r.read(r.mountOf("web", "/labels").GetHostPath() + "/text"); got != labels {
				t.Errorf("labels are %q, want %q", got, labels)
			}
			if got := r.read(r.mountOf("web", "/notes").GetHostPath() + "/text"); got != note {
				t.Errorf("annotation is %q, want %q", got, note)
			}
		}
		want(`app="web"`, "one")
		edit := func(f func(*corev1.Pod)) {
			t.Helper()
			p := r.pod("web").DeepCopy()
			f(p)
			if _, err := client.Pods.Update(t.Context(), r.api, p, ""); err != nil {
				t.Fatal(err)
			}
		}
		edit(func(p *corev1.Pod) { p.Labels["tier"] = "front" })
		want("app=\"web\"\ntier=\"front\"", "one")
		edit(func(p *corev1.Pod) { p.Annotations["note"] = "two" })
		want("app=\"web\"\ntier=\"front\"", "two")
		edit(func(p *corev1.Pod) { p.Labels = nil })
		want("", "two")
		if n := api.issued.Load(); n != 1 {
			t.Errorf("%d tokens were issued, want the first to stay", n)
		}
	})
}

func TestEmptyDirInMemoryIsBoundedByThePod(t *testing.T) {
	root := t.TempDir()
	t.Cleanup(func() {
		if err := volumes.Clean(root); err != nil {
			t.Error(err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.opts.RootDir = root
		r.opts.Capacity = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")}
		stop := r.start()
		defer stop()
		<-r.node.Ready()
		for _, tt := range []struct {
			name, limit, sizeLimit string
			want                   uint64
		}{
			{"plain", "", "", 64 << 20},
			{"limited", "16Mi", "", 16 << 20},
			{"less", "16Mi", "4Mi", 4 << 20},
			{"more", "16Mi", "32Mi", 16 << 20},
		} {
			r.create(webPod(tt.name, func(p *corev1.Pod) {
				e := &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}
				if tt.sizeLimit != "" {
					e.SizeLimit = new(resource.MustParse(tt.sizeLimit))
				}
				if tt.limit != "" {
					p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(tt.limit)}
				}
				p.Spec.Volumes = []corev1.Volume{{Name: "fast", VolumeSource: corev1.VolumeSource{EmptyDir: e}}}
				p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "fast", MountPath: "/fast"}}
			}))
			r.await(tt.name, "ready", isReady)
			var s syscall.Statfs_t
			if err := syscall.Statfs(r.mountOf(tt.name, "/fast").GetHostPath(), &s); err != nil {
				t.Fatal(err)
			}
			if got := s.Blocks * uint64(s.Bsize); got != tt.want {
				t.Errorf("%s: the directory has room for %d bytes, want %d", tt.name, got, tt.want)
			}
			r.delete(tt.name)
			r.await(tt.name, "gone", gone)
		}
	})
}
