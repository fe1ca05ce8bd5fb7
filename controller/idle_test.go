package controller_test

import (
	"fmt"
	"runtime/metrics"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/controller/bootstraptokens"
	"github.com/sampan-io/sampan/controller/controllertest"
	"github.com/sampan-io/sampan/controller/disruption"
	"github.com/sampan-io/sampan/controller/endpoints"
	"github.com/sampan-io/sampan/controller/garbage"
	"github.com/sampan-io/sampan/controller/namespaces"
	"github.com/sampan-io/sampan/controller/nodelifecycle"
	"github.com/sampan-io/sampan/controller/sets"
	"github.com/sampan-io/sampan/controller/tokens"
	"github.com/sampan-io/sampan/controller/workload"
	"github.com/sampan-io/sampan/internal/run"
)

// idlePods is how many there are in a cluster that rests.
const idlePods = 1000

// everything is all controllers. No node is ever lost, since none is there to renew its
// Lease.
func everything(c client.Interface, caches *cache.Shared) []run.Task {
	config := controllertest.Config(c, caches)
	return slices.Concat(
		workload.Tasks(config),
		sets.Tasks(config),
		disruption.Tasks(config),
		endpoints.Tasks(config),
		namespaces.Tasks(namespaces.Options{Config: config, Resources: clienttest.Resources(), RootCA: []byte("PEM")}),
		garbage.Tasks(garbage.Options{Config: config, Resources: clienttest.Resources()}),
		tokens.Tasks(tokens.Options{Config: config, Cleaner: c, Roots: noRoots{}}),
		bootstraptokens.Tasks(bootstraptokens.Options{Config: config, Cleaner: c, Signer: c}),
		nodelifecycle.Tasks(nodelifecycle.Options{Config: config, NodeGrace: 100 * 365 * 24 * time.Hour}),
	)
}

// noRoots is an authority that never changes.
type noRoots struct{}

func (noRoots) CertificatePEM() []byte { return nil }
func (noRoots) OnChange(func())        {}

// restingCluster is one object of each kind that has pods, and what goes with them.
func restingCluster() []client.Object {
	const nodes, jobs, stateful, rcs = 50, 150, 100, 100
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "default", Name: name, Generation: 1, Labels: map[string]string{"app": name}}
	}
	pods := func(name string) corev1.PodTemplateSpec {
		return corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": name}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "v1"}}},
		}
	}
	selector := func(name string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
	}
	web := pods("rc")
	once := pods("job")
	once.Spec.RestartPolicy = corev1.RestartPolicyNever
	objs := []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}, Status: corev1.NamespaceStatus{Phase: corev1.NamespaceActive}},
		&corev1.ReplicationController{ObjectMeta: meta("rc"), Spec: corev1.ReplicationControllerSpec{Replicas: new(int32(rcs)), Selector: web.Labels, Template: &web}},
		&appsv1.StatefulSet{ObjectMeta: meta("set"), Spec: appsv1.StatefulSetSpec{
			Replicas: new(int32(stateful)), Selector: selector("set"), Template: pods("set"), PodManagementPolicy: appsv1.ParallelPodManagement,
			UpdateStrategy: appsv1.StatefulSetUpdateStrategy{Type: appsv1.RollingUpdateStatefulSetStrategyType}, RevisionHistoryLimit: new(int32(10)),
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}},
		}},
		&appsv1.DaemonSet{ObjectMeta: meta("daemon"), Spec: appsv1.DaemonSetSpec{
			Selector: selector("daemon"), Template: pods("daemon"), RevisionHistoryLimit: new(int32(10)),
			UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType},
		}},
		&batchv1.Job{ObjectMeta: meta("job"), Spec: batchv1.JobSpec{
			Parallelism: new(int32(jobs)), Completions: new(int32(jobs)), Selector: selector("job"), Template: once,
		}},
		&appsv1.Deployment{ObjectMeta: meta("web"), Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(idlePods - nodes - jobs - stateful - rcs)), Selector: selector("web"), Template: pods("web"),
			Strategy: appsv1.DeploymentStrategy{
				Type:          appsv1.RollingUpdateDeploymentStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: new(intstr.FromString("25%")), MaxUnavailable: new(intstr.FromString("25%"))},
			},
			ProgressDeadlineSeconds: new(int32(600)), RevisionHistoryLimit: new(int32(10)),
		}},
		&policyv1.PodDisruptionBudget{ObjectMeta: meta("web"), Spec: policyv1.PodDisruptionBudgetSpec{
			Selector: selector("web"), MinAvailable: new(intstr.FromString("50%")),
		}},
		&corev1.Service{ObjectMeta: meta("web"), Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.0.0.1", ClusterIPs: []string{"10.0.0.1"}, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(80), Protocol: corev1.ProtocolTCP}},
		}},
	}
	for i := range nodes {
		name := fmt.Sprint("n", i)
		objs = append(objs,
			&corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: name},
				Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
			},
			&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: name}},
		)
	}
	return objs
}

// wakeUps returns about how often a goroutine of this process was given a processor: the
// runtime counts one of eight.
func wakeUps() (n uint64) {
	samples := []metrics.Sample{{Name: "/sched/latencies:seconds"}}
	metrics.Read(samples)
	for _, count := range samples[0].Value.Float64Histogram().Counts {
		n += count
	}
	return 8 * n
}

// TestAllControllersRestWhileNothingChanges lets a cluster of a thousand pods come to rest and then passes a day without an
// event: no controller sends a request to the server, and no goroutine wakes up. Renewals of Leases cause no request either.
func TestAllControllersRestWhileNothingChanges(t *testing.T) {
	controllertest.Controlling(t, everything, func(t *testing.T, s *clienttest.Server) {
		controllertest.ServeAll(t, s)
		time.Sleep(time.Hour) // deadlines and events that wait for their like are over
		controllertest.ServeAll(t, s)
		if n := len(controllertest.Active(s)); n != idlePods {
			t.Fatalf("%d pods, want %d", n, idlePods)
		}
		for _, d := range clienttest.All(s, client.Deployments, "default") {
			if d.Status.AvailableReplicas != *d.Spec.Replicas {
				t.Errorf("status = %+v", d.Status)
			}
		}
		if b := clienttest.Find(s, client.PodDisruptionBudgets, "default", "web"); b.Status.DisruptionsAllowed != b.Status.ExpectedPods/2 || b.Status.ExpectedPods == 0 {
			t.Errorf("budget = %+v", b.Status)
		}

		var asked atomic.Int32
		s.Intercept(func(r clienttest.Request) error {
			if asked.Add(1) < 5 {
				t.Errorf("an idle cluster asks: %s %s %s/%s", r.Verb, r.Resource, r.Namespace, r.Name)
			}
			return nil
		})
		before := wakeUps()
		time.Sleep(24 * time.Hour)
		if n := wakeUps() - before; n > 400 {
			// A look once in three minutes would be 480. A few are the runtime's own.
			t.Errorf("about %d wake-ups on an idle day", n)
		}
		for range 10 {
			time.Sleep(10 * time.Second)
			for _, l := range clienttest.All(s, client.Leases, corev1.NamespaceNodeLease) {
				l = l.DeepCopy()
				l.Spec.RenewTime = new(metav1.NewMicroTime(time.Now()))
				s.Set(t, l)
			}
			synctest.Wait()
		}
		if n := asked.Load(); n != 0 {
			t.Errorf("%d requests while nothing changed but Leases", n)
		}
	}, restingCluster()...)
}
