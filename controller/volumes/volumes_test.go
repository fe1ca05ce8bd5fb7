package volumes_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/controller/controllertest"
	"github.com/sampan-io/sampan/controller/volumes"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/internal/volumefit"
	"github.com/sampan-io/sampan/scheduler"
	"github.com/sampan-io/sampan/scheduler/builtin"
	"github.com/sampan-io/sampan/scheduler/plugin/plugintest"
)

func tasks(c client.Interface, caches *cache.Shared) []run.Task {
	return volumes.Tasks(controllertest.Config(c, caches))
}

// withScheduler adds our scheduler to the controllers.
func withScheduler(t *testing.T, set *builtin.VolumeBinding) controllertest.Tasks {
	return func(c client.Interface, caches *cache.Shared) []run.Task {
		plugins := builtin.Default()
		plugins.Entries[plugins.Find(set.Name())].Plugin = set
		s, err := scheduler.New(scheduler.Options{Client: c, Caches: caches, Plugins: plugins})
		if err != nil {
			t.Fatal(err)
		}
		return append(tasks(c, caches), run.Task{Name: "scheduler", Run: s.Run, Ready: s.Ready()})
	}
}

// from makes objects from YAML, one on a line.
func from(text string) (objs []client.Object) {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			obj := plugintest.Object(line)
			obj.SetUID("")
			objs = append(objs, obj)
		}
	}
	return objs
}

// give creates objects on a server.
func give(t *testing.T, s *clienttest.Server, text string) {
	t.Helper()
	for _, obj := range from(text) {
		s.Set(t, obj)
	}
	controllertest.Rest()
}

// show returns claims and volumes with their events as text.
func show(s *clienttest.Server) string {
	var lines []string
	for _, c := range clienttest.All(s, client.PersistentVolumeClaims, "") {
		line := fmt.Sprintf("claim %s %s %s", c.Name, c.Status.Phase, c.Spec.VolumeName)
		if q, ok := c.Status.Capacity[corev1.ResourceStorage]; ok {
			line += " " + q.String()
		}
		for _, a := range []string{volumefit.BindCompleted, volumefit.BoundByController} {
			if c.Annotations[a] != "" {
				line += " " + strings.TrimPrefix(a, "pv.kubernetes.io/")
			}
		}
		for _, a := range []string{volumefit.Provisioner, volumefit.SelectedNode} {
			if v := c.Annotations[a]; v != "" {
				line += " " + strings.TrimPrefix(a, "volume.kubernetes.io/") + "=" + v
			}
		}
		if c.DeletionTimestamp != nil {
			line += " going"
		}
		lines = append(lines, strings.TrimSpace(line))
	}
	for _, v := range clienttest.All(s, client.PersistentVolumes, "") {
		line := fmt.Sprintf("volume %s %s", v.Name, v.Status.Phase)
		if ref := v.Spec.ClaimRef; ref != nil {
			line += " for " + ref.Name
			if ref.UID == "" {
				line += " by name"
			}
		}
		if v.Annotations[volumefit.BoundByController] != "" {
			line += " bound-by-controller"
		}
		if v.DeletionTimestamp != nil {
			line += " going"
		}
		lines = append(lines, line)
	}
	var events []string
	for _, e := range clienttest.All(s, client.Events, "") {
		if e.InvolvedObject.Kind != "Pod" || e.Type == corev1.EventTypeWarning {
			events = append(events, fmt.Sprintf("%s %s %s: %s", strings.ToLower(e.InvolvedObject.Kind), e.InvolvedObject.Name, e.Reason, e.Message))
		}
	}
	slices.Sort(events)
	return strings.Join(append(lines, slices.Compact(events)...), "\n")
}

func expect(t *testing.T, s *clienttest.Server, when, want string) {
	t.Helper()
	controllertest.Rest()
	var lines []string
	for line := range strings.Lines(want) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	if got, want := show(s), strings.Join(lines, "\n"); got != want {
		t.Errorf("%s:\n%s\nwant\n%s", when, got, want)
	}
}

const pvc = `{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {namespace: default, name: %s}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: %s}}%s}}`

const pv = `{apiVersion: v1, kind: PersistentVolume, metadata: {name: %s}, spec: {accessModes: [ReadWriteOnce], capacity: {storage: %s}, persistentVolumeReclaimPolicy: Retain, hostPath: {path: /x}%s}}`

// TestClaimsFindVolumes has a world in each row and what comes of it.
func TestClaimsFindVolumes(t *testing.T) {
	tests := []struct{ name, objs, want string }{
		{
			"the smallest that fits",
			fmt.Sprintf(pvc, "c", "5Gi", "") + "\n" + fmt.Sprintf(pv, "small", "4Gi", "") + "\n" + fmt.Sprintf(pv, "fits", "6Gi", "") + "\n" + fmt.Sprintf(pv, "large", "7Gi", ""),
			`claim c Bound fits 6Gi bind-completed bound-by-controller
			 volume fits Bound for c bound-by-controller
			 volume large Available
			 volume small Available`,
		},
		{
			"the fewest modes first",
			fmt.Sprintf(pvc, "c", "1Gi", "") + "\n" + fmt.Sprintf(pv, "plain", "7Gi", "") + "\n" + strings.Replace(fmt.Sprintf(pv, "rich", "6Gi", ""), "[ReadWriteOnce]", "[ReadWriteOnce, ReadOnlyMany]", 1),
			`claim c Bound plain 7Gi bind-completed bound-by-controller
			 volume plain Bound for c bound-by-controller
			 volume rich Available`,
		},
		{
			"nothing, and no class",
			fmt.Sprintf(pvc, "c", "5Gi", "") + "\n" + fmt.Sprintf(pv, "classy", "5Gi", ", storageClassName: x"),
			`claim c Pending
			 volume classy Available
			 persistentvolumeclaim c FailedBinding: no persistent volumes available for this claim and no storage class is set`,
		},
		{
			"a volume that a user reserved, whatever else there is",
			fmt.Sprintf(pvc, "c", "5Gi", "") + "\n" + fmt.Sprintf(pv, "fits", "5Gi", "") + "\n" + fmt.Sprintf(pv, "mine", "50Gi", ", claimRef: {namespace: default, name: c}"),
			`claim c Bound mine 50Gi bind-completed bound-by-controller
			 volume fits Available
			 volume mine Bound for c`,
		},
		{
			"a claim that names its volume",
			fmt.Sprintf(pvc, "c", "5Gi", ", volumeName: it") + "\n" + fmt.Sprintf(pv, "it", "9Gi", "") + "\n" + fmt.Sprintf(pv, "fits", "5Gi", ""),
			`claim c Bound it 9Gi bind-completed
			 volume fits Available
			 volume it Bound for c bound-by-controller`,
		},
		{
			"a claim that names a volume that does not fit",
			fmt.Sprintf(pvc, "c", "5Gi", ", volumeName: it") + "\n" + fmt.Sprintf(pv, "it", "4Gi", ""),
			`claim c Pending it
			 volume it Available
			 persistentvolumeclaim c VolumeMismatch: Cannot bind to requested volume "it": requested PV is too small`,
		},
		{
			"a claim that names another's volume",
			fmt.Sprintf(pvc, "c", "5Gi", ", volumeName: it") + "\n" + fmt.Sprintf(pv, "it", "9Gi", ", claimRef: {namespace: default, name: x}"),
			`claim c Pending it
			 volume it Available for x by name
			 persistentvolumeclaim c FailedBinding: volume "it" already bound to a different claim.`,
		},
		{
			"a claim that names no volume that is there",
			fmt.Sprintf(pvc, "c", "5Gi", ", volumeName: it"),
			`claim c Pending it`,
		},
		{
			"a provisioner is asked",
			fmt.Sprintf(pvc, "c", "5Gi", ", storageClassName: made") + "\n{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: made}, provisioner: disks.example.com, volumeBindingMode: Immediate}",
			`claim c Pending  storage-provisioner=disks.example.com
			 persistentvolumeclaim c ExternalProvisioning: Waiting for a volume to be created either by the external provisioner 'disks.example.com' or manually by the system administrator. If volume creation is delayed, please verify that the provisioner is running and correctly registered.`,
		},
		{
			"a class that there is not, and one whose volumes nobody makes",
			fmt.Sprintf(pvc, "c", "5Gi", ", storageClassName: made") + "\n" + fmt.Sprintf(pvc, "d", "5Gi", ", storageClassName: static") +
				"\n{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: static}, provisioner: kubernetes.io/no-provisioner, volumeBindingMode: Immediate}",
			`claim c Pending
			 claim d Pending
			 persistentvolumeclaim c ProvisioningFailed: storageclass.storage.k8s.io "made" not found
			 persistentvolumeclaim d ProvisioningFailed: no volume plugin matched name: kubernetes.io/no-provisioner`,
		},
		{
			"the first consumer is waited for, although there is a volume",
			fmt.Sprintf(pvc, "c", "5Gi", ", storageClassName: late") + "\n" + fmt.Sprintf(pvc, "d", "5Gi", ", storageClassName: late") + "\n" + fmt.Sprintf(pv, "fits", "5Gi", ", storageClassName: late") +
				"\n{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: late}, provisioner: kubernetes.io/no-provisioner, volumeBindingMode: WaitForFirstConsumer}" +
				"\n{apiVersion: v1, kind: Pod, metadata: {namespace: default, name: p}, spec: {schedulerName: x, volumes: [{name: d, persistentVolumeClaim: {claimName: d}}]}}",
			`claim c Pending
			 claim d Pending
			 volume fits Available
			 persistentvolumeclaim c WaitForFirstConsumer: waiting for first consumer to be created before binding
			 persistentvolumeclaim d WaitForPodScheduled: waiting for pod p to be scheduled`,
		},
		{
			"a volume with a file system that is yet to be expanded",
			fmt.Sprintf(pvc, "c", "5Gi", "") + "\n" +
				strings.Replace(fmt.Sprintf(pv, "v", "5Gi", ""), "name: v", "name: v, annotations: {volume.alpha.kubernetes.io/pre-resize-capacity: 2Gi}", 1),
			`claim c Bound v 2Gi bind-completed bound-by-controller
			 volume v Bound for c bound-by-controller`,
		},
		{
			"modes that do not agree",
			fmt.Sprintf(pvc, "c", "5Gi", "") + "\n" + fmt.Sprintf(pv, "block", "5Gi", ", volumeMode: Block"),
			`claim c Pending
			 volume block Available
			 persistentvolumeclaim c FailedBinding: no persistent volumes available for this claim and no storage class is set`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			controllertest.Controlling(t, tasks, func(t *testing.T, s *clienttest.Server) {
				claims := slices.DeleteFunc(strings.Split(tt.objs, "\n"), func(line string) bool { return !strings.Contains(line, "kind: PersistentVolumeClaim,") })
				give(t, s, strings.Join(slices.DeleteFunc(strings.Split(tt.objs, "\n"), func(line string) bool { return slices.Contains(claims, line) }), "\n"))
				give(t, s, strings.Join(claims, "\n"))
				expect(t, s, "in the end", tt.want)
			})
		})
	}
}

// TestLifeOfAVolume goes through the phases, and through what protects claim and volume.
func TestLifeOfAVolume(t *testing.T) {
	controllertest.Controlling(t, tasks, func(t *testing.T, s *clienttest.Server) {
		give(t, s, fmt.Sprintf(pvc, "c", "5Gi", ""))
		give(t, s, fmt.Sprintf(pv, "v", "5Gi", ""))
		warning := `persistentvolumeclaim c FailedBinding: no persistent volumes available for this claim and no storage class is set`
		expect(t, s, "bound", "claim c Bound v 5Gi bind-completed bound-by-controller\nvolume v Bound for c bound-by-controller\n"+warning)

		give(t, s, `{apiVersion: v1, kind: Pod, metadata: {namespace: default, name: p}, spec: {nodeName: n, volumes: [{name: d, persistentVolumeClaim: {claimName: c}}]}}`)
		remove(t, s, client.PersistentVolumes, "", "v")
		remove(t, s, client.PersistentVolumeClaims, "default", "c")
		expect(t, s, "in use", "claim c Bound v 5Gi bind-completed bound-by-controller going\nvolume v Bound for c bound-by-controller going\n"+warning)
		s.Remove(t, clienttest.Find(s, client.Pods, "default", "p"))
		expect(t, s, "out of use", warning)

		give(t, s, fmt.Sprintf(pvc, "c", "5Gi", ""))
		give(t, s, fmt.Sprintf(pv, "v", "5Gi", ""))
		remove(t, s, client.PersistentVolumeClaims, "default", "c")
		expect(t, s, "released", "volume v Released for c bound-by-controller\n"+warning)
		give(t, s, fmt.Sprintf(pvc, "c", "5Gi", ""))
		expect(t, s, "not given to another of that name", "claim c Pending\nvolume v Released for c bound-by-controller\n"+warning)
		v := clienttest.Find(s, client.PersistentVolumes, "", "v").DeepCopy()
		v.Spec.ClaimRef = nil
		s.Set(t, v)
		expect(t, s, "given back by its owner", "claim c Bound v 5Gi bind-completed bound-by-controller\nvolume v Bound for c bound-by-controller\n"+warning)
		s.Remove(t, clienttest.Find(s, client.PersistentVolumes, "", "v"))
		expect(t, s, "lost", "claim c Lost v bind-completed bound-by-controller\n"+
			"persistentvolumeclaim c ClaimLost: Bound claim has lost its PersistentVolume. Data on the volume is lost!\n"+warning)
	})
}

func remove[T client.Object](t *testing.T, s *clienttest.Server, r client.Resource[T], namespace, name string) {
	t.Helper()
	if err := r.Delete(t.Context(), s, namespace, name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	controllertest.Rest()
}

// TestReleasedVolumesAreReclaimed has a policy in each row.
func TestReleasedVolumesAreReclaimed(t *testing.T) {
	for _, tt := range []struct{ spec, annotations, want string }{
		{"Retain", "", "volume v Released for c"},
		{"Recycle", "", "volume v Failed for c\npersistentvolume v VolumeFailedRecycle: No recycler plugin found for the volume!"},
		{"Delete", "", "volume v Failed for c\n" + `persistentvolume v VolumeFailedDelete: error getting deleter volume plugin for volume "v": no deletable volume plugin matched`},
		{"Delete", "pv.kubernetes.io/provisioned-by: disks.example.com", "volume v Released for c"},
	} {
		controllertest.Controlling(t, tasks, func(t *testing.T, s *clienttest.Server) { expect(t, s, tt.spec, tt.want) },
			from(fmt.Sprintf(`{apiVersion: v1, kind: PersistentVolume, metadata: {name: v, annotations: {%s}}, spec: {accessModes: [ReadWriteOnce], capacity: {storage: 1Gi}, hostPath: {path: /x}, persistentVolumeReclaimPolicy: %s, claimRef: {namespace: default, name: c, uid: gone}}}`, tt.annotations, tt.spec))...)
	}
}

// TestADefaultClassThatComesLater is given to claims that have none and wait.
func TestADefaultClassThatComesLater(t *testing.T) {
	controllertest.Controlling(t, tasks, func(t *testing.T, s *clienttest.Server) {
		give(t, s, fmt.Sprintf(pvc, "c", "5Gi", "")+"\n"+fmt.Sprintf(pvc, "none", "5Gi", `, storageClassName: ""`))
		give(t, s, `{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: late, annotations: {storageclass.kubernetes.io/is-default-class: "true"}}, provisioner: x.io/y, volumeBindingMode: WaitForFirstConsumer}`)
		if c := clienttest.Find(s, client.PersistentVolumeClaims, "default", "c"); volumefit.Class(c) != "late" {
			t.Errorf("class %q, want the default one", volumefit.Class(c))
		}
		if c := clienttest.Find(s, client.PersistentVolumeClaims, "default", "none"); volumefit.Class(c) != "" {
			t.Errorf("class %q, want none", volumefit.Class(c))
		}
	})
}

// TestEphemeralVolumesGetClaims that are their pod's own.
func TestEphemeralVolumesGetClaims(t *testing.T) {
	controllertest.Controlling(t, tasks, func(t *testing.T, s *clienttest.Server) {
		give(t, s, `{apiVersion: v1, kind: Pod, metadata: {namespace: default, name: p}, spec: {volumes: [{name: scratch, ephemeral: {volumeClaimTemplate: {metadata: {labels: {a: b}}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}}]}}`)
		pod, c := clienttest.Find(s, client.Pods, "default", "p"), clienttest.Find(s, client.PersistentVolumeClaims, "default", "p-scratch")
		if volumefit.Owned(pod, c) != nil || c.Labels["a"] != "b" || c.Spec.Resources.Requests.Storage().String() != "1Gi" {
			t.Errorf("the claim is %+v", c)
		}
		give(t, s, fmt.Sprintf(pvc, "q-scratch", "1Gi", ""))
		give(t, s, `{apiVersion: v1, kind: Pod, metadata: {namespace: default, name: q}, spec: {volumes: [{name: scratch, ephemeral: {volumeClaimTemplate: {spec: {}}}}]}}`)
		if c := clienttest.Find(s, client.PersistentVolumeClaims, "default", "q-scratch"); len(c.OwnerReferences) > 0 {
			t.Errorf("somebody else's claim was taken: %+v", c)
		}
	})
}

// TestACrashAnywhere leaves nothing half done.
func TestACrashAnywhere(t *testing.T) {
	controllertest.CrashAnywhere(t, tasks, 16, func() []client.Object { return nil },
		func(t *testing.T, s *clienttest.Server) {
			for _, obj := range from(fmt.Sprintf(pvc, "c", "5Gi", ", storageClassName: x") + "\n" + fmt.Sprintf(pvc, "d", "2Gi", ", storageClassName: y") + "\n" +
				fmt.Sprintf(pv, "v", "5Gi", ", storageClassName: x") + "\n" + fmt.Sprintf(pv, "w", "2Gi", ", storageClassName: y")) {
				s.Set(t, obj)
			}
		},
		func(t *testing.T, s *clienttest.Server) {
			for name, want := range map[string]string{"c": "v", "d": "w"} {
				c := clienttest.Find(s, client.PersistentVolumeClaims, "default", name)
				if v := clienttest.Find(s, client.PersistentVolumes, "", want); !volumefit.Bound(c) || c.Status.Phase != corev1.ClaimBound || c.Spec.VolumeName != want || v.Spec.ClaimRef.UID != c.UID || v.Status.Phase != corev1.VolumeBound {
					t.Errorf("claim %s has volume %q (%s), want %s\n%s", name, c.Spec.VolumeName, c.Status.Phase, want, show(s))
				}
			}
		})
}

const late = `{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: late}, provisioner: %s, volumeBindingMode: WaitForFirstConsumer}`

const node = `{apiVersion: v1, kind: Node, metadata: {name: %[1]s, labels: {kubernetes.io/hostname: %[1]s}}, status: {allocatable: {cpu: "8", memory: 8Gi, pods: "99"}}}`

const pod = `{apiVersion: v1, kind: Pod, metadata: {namespace: default, name: %s}, spec: {schedulerName: default-scheduler, containers: [{name: c, image: i}], volumes: [{name: d, persistentVolumeClaim: {claimName: %s}}]}}`

func only(node string) string {
	return fmt.Sprintf(`, storageClassName: late, nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [%s]}]}]}}`, node)
}

func nodeOf(s *clienttest.Server, pod string) string {
	return clienttest.Find(s, client.Pods, "default", pod).Spec.NodeName
}

// TestTheFirstConsumer has scheduler and binder bring pods, claims and volumes together.
func TestTheFirstConsumer(t *testing.T) {
	controllertest.Controlling(t, withScheduler(t, &builtin.VolumeBinding{}), func(t *testing.T, s *clienttest.Server) {
		give(t, s, fmt.Sprintf(late, "kubernetes.io/no-provisioner")+"\n"+fmt.Sprintf(node, "a")+"\n"+fmt.Sprintf(node, "b"))
		give(t, s, fmt.Sprintf(pv, "v1", "5Gi", only("b"))+"\n"+fmt.Sprintf(pv, "v2", "6Gi", only("a"))+"\n"+fmt.Sprintf(pv, "v3", "1Gi", only("a")))
		give(t, s, fmt.Sprintf(pvc, "c", "5Gi", ", storageClassName: late")+"\n"+fmt.Sprintf(pvc, "d", "5Gi", ", storageClassName: late")+"\n"+fmt.Sprintf(pvc, "e", "5Gi", ", storageClassName: late"))
		// All at once: none may get what another has.
		give(t, s, fmt.Sprintf(pod, "p", "c")+"\n"+fmt.Sprintf(pod, "q", "d")+"\n"+fmt.Sprintf(pod, "r", "e"))
		time.Sleep(time.Minute)
		var bound []string
		for _, c := range clienttest.All(s, client.PersistentVolumeClaims, "") {
			if c.Status.Phase == corev1.ClaimBound {
				bound = append(bound, c.Spec.VolumeName)
			}
		}
		slices.Sort(bound)
		if !slices.Equal(bound, []string{"v1", "v2"}) {
			t.Errorf("bound to %v, want v1 and v2\n%s", bound, show(s))
		}
		placed := 0
		for name, c := range map[string]string{"p": "c", "q": "d", "r": "e"} {
			on := nodeOf(s, name)
			v := clienttest.Find(s, client.PersistentVolumeClaims, "default", c).Spec.VolumeName
			if want := map[string]string{"v1": "b", "v2": "a", "": ""}[v]; on != want {
				t.Errorf("pod %s of volume %q is on %q, want %q", name, v, on, want)
			}
			if on != "" {
				placed++
			}
		}
		if placed != 2 {
			t.Errorf("%d pods have a node, want 2\n%s", placed, show(s))
		}
		// Then there is one for the third, too.
		give(t, s, fmt.Sprintf(pv, "v4", "5Gi", only("b")))
		time.Sleep(time.Minute)
		synctest.Wait()
		for _, name := range []string{"p", "q", "r"} {
			if nodeOf(s, name) == "" {
				t.Errorf("pod %s has no node\n%s", name, show(s))
			}
		}
	})
}

// TestTheProvisionerIsWaitedFor until it has made the volume, and asked again when it fails.
func TestTheProvisionerIsWaitedFor(t *testing.T) {
	controllertest.Controlling(t, withScheduler(t, &builtin.VolumeBinding{}), func(t *testing.T, s *clienttest.Server) {
		give(t, s, fmt.Sprintf(late, "disks.example.com")+"\n"+fmt.Sprintf(node, "a")+"\n"+fmt.Sprintf(pvc, "c", "5Gi", ", storageClassName: late"))
		give(t, s, fmt.Sprintf(pod, "p", "c"))
		c := clienttest.Find(s, client.PersistentVolumeClaims, "default", "c")
		if c.Annotations[volumefit.SelectedNode] != "a" || c.Annotations[volumefit.Provisioner] != "disks.example.com" || nodeOf(s, "p") != "" {
			t.Fatalf("the provisioner is not asked:\n%s", show(s))
		}
		// It cannot, there.
		c = c.DeepCopy()
		delete(c.Annotations, volumefit.SelectedNode)
		s.Set(t, c)
		synctest.Wait()
		if why := show(s); !strings.Contains(why, `pod p FailedScheduling: running PreBind plugin "VolumeBinding": binding volumes: provisioning failed for PVC "c"`) {
			t.Errorf("it does not say so:\n%s", why)
		}
		time.Sleep(30 * time.Second) // the pause after a failure
		synctest.Wait()
		c = clienttest.Find(s, client.PersistentVolumeClaims, "default", "c")
		if c.Annotations[volumefit.SelectedNode] != "a" {
			t.Fatalf("the provisioner is not asked again:\n%s", show(s))
		}
		give(t, s, strings.Replace(fmt.Sprintf(pv, "made", "5Gi", fmt.Sprintf("%s, claimRef: {namespace: default, name: c, uid: %s}", only("a"), c.UID)), "name: made}", `name: made, annotations: {pv.kubernetes.io/provisioned-by: disks.example.com}}`, 1))
		if nodeOf(s, "p") != "a" {
			t.Errorf("the pod is not bound:\n%s", show(s))
		}
	})
}

// TestTheWaitHasAnEnd by its time, or with the pod.
func TestTheWaitHasAnEnd(t *testing.T) {
	controllertest.Controlling(t, withScheduler(t, &builtin.VolumeBinding{BindTimeout: new(90 * time.Second)}), func(t *testing.T, s *clienttest.Server) {
		give(t, s, fmt.Sprintf(late, "disks.example.com")+"\n"+fmt.Sprintf(node, "a")+"\n"+fmt.Sprintf(pvc, "c", "5Gi", ", storageClassName: late")+"\n"+fmt.Sprintf(pod, "p", "c"))
		const why = `pod p FailedScheduling: running PreBind plugin "VolumeBinding": binding volumes: context deadline exceeded`
		time.Sleep(89 * time.Second)
		synctest.Wait()
		if strings.Contains(show(s), why) {
			t.Errorf("too early:\n%s", show(s))
		}
		time.Sleep(4 * time.Second) // the pod may have had a back-off of a second, before the scheduler saw the node
		synctest.Wait()
		if !strings.Contains(show(s), why) {
			t.Errorf("it does not end:\n%s", show(s))
		}
		time.Sleep(10 * time.Second) // it waits again
		s.Remove(t, clienttest.Find(s, client.Pods, "default", "p"))
		give(t, s, fmt.Sprintf(pod, "next", "c"))
		if c := clienttest.Find(s, client.PersistentVolumeClaims, "default", "c"); c.Annotations[volumefit.SelectedNode] != "a" {
			t.Errorf("the claim is %+v", c.Annotations)
		}
		c := clienttest.Find(s, client.PersistentVolumeClaims, "default", "c")
		give(t, s, fmt.Sprintf(pv, "made", "5Gi", fmt.Sprintf("%s, claimRef: {namespace: default, name: c, uid: %s}", only("a"), c.UID)))
		if nodeOf(s, "next") != "a" {
			t.Errorf("the next pod is not bound:\n%s", show(s))
		}
	})
}
