package migration_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	migrationv1 "k8s.io/api/storagemigration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/controller/controllertest"
	"github.com/sampan-io/sampan/controller/migration"
	"github.com/sampan-io/sampan/internal/leaktest"
	"github.com/sampan-io/sampan/internal/run"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func tasks(c client.Interface, caches *cache.Shared) []run.Task {
	return migration.Tasks(migration.Options{Config: controllertest.Config(c, caches), Resources: clienttest.Resources()})
}

func migrationOf(name, resource string) *migrationv1.StorageVersionMigration {
	m := &migrationv1.StorageVersionMigration{ObjectMeta: metav1.ObjectMeta{Name: name}}
	m.Spec.Resource = metav1.GroupResource{Resource: resource}
	return m
}

// conditions returns the conditions of a migration as "TYPE=STATUS REASON: MESSAGE", sorted as they are.
func conditions(s *clienttest.Server, name string) string {
	var all []string
	for _, c := range clienttest.Find(s, client.StorageVersionMigrations, "", name).Status.Conditions {
		all = append(all, c.Type+"="+string(c.Status)+" "+c.Reason+": "+c.Message)
	}
	return strings.Join(all, "\n")
}

func config(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
}

// start creates the migration "m" of config maps.
func start(t *testing.T, s *clienttest.Server) {
	t.Helper()
	if _, err := client.StorageVersionMigrations.Create(t.Context(), s, migrationOf("m", "configmaps")); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
}

func TestEveryObjectIsWrittenAgain(t *testing.T) {
	controllertest.Controlling(t, tasks, func(t *testing.T, s *clienttest.Server) {
		patched := map[string]bool{}
		s.Intercept(func(r clienttest.Request) error {
			if r.Verb == "patch" && r.Resource == "configmaps" {
				patched[r.Name] = true
			}
			return nil
		})
		start(t, s)
		if !patched["a"] || !patched["b"] || len(patched) != 2 {
			t.Errorf("patched were %v, want a and b", patched)
		}
		want := "Running=False MigrationCompleted: Migration completed\nSucceeded=True StorageVersionMigrationSucceeded: Migration completed"
		if got := conditions(s, "m"); got != want {
			t.Errorf("the conditions are\n%s\nwant\n%s", got, want)
		}
		if clienttest.Find(s, client.StorageVersionMigrations, "", "m").Status.ResourceVersion == "" {
			t.Error("the status has no resource version")
		}
	}, config("a"), config("b"))
}

// TestMigrationShortensStoredVersions follows the definition of a migrated resource: it lists the versions in which objects
// may be stored.
func TestMigrationShortensStoredVersions(t *testing.T) {
	crds := client.Resource[*apiextensionsv1.CustomResourceDefinition]{
		GroupVersionResource: apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions"), Kind: "CustomResourceDefinition",
	}
	// The server of the test has no custom resources: the definition has the name of a built-in one.
	crd := &apiextensionsv1.CustomResourceDefinition{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"},
		ObjectMeta: metav1.ObjectMeta{Name: "leases.coordination.k8s.io", Generation: 4},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group:    "coordination.k8s.io",
			Names:    apiextensionsv1.CustomResourceDefinitionNames{Plural: "leases", Kind: "Lease"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1beta1", Served: true}, {Name: "v1", Served: true, Storage: true}},
		},
		Status: apiextensionsv1.CustomResourceDefinitionStatus{
			StoredVersions: []string{"v1beta1", "v1"},
			Conditions:     []apiextensionsv1.CustomResourceDefinitionCondition{{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue}},
		},
	}
	state := func(s *clienttest.Server) string {
		d := clienttest.Find(s, crds, "", crd.Name)
		c := d.Status.Conditions[len(d.Status.Conditions)-1]
		return fmt.Sprintf("%d conditions, %s=%s %s: %s %v", len(d.Status.Conditions), c.Type, c.Status, c.Reason, c.Message, d.Status.StoredVersions)
	}
	for what, test := range map[string]struct {
		during func(*testing.T, *clienttest.Server) error // the answer to the write of the lease
		want   string
	}{
		"success": {
			func(*testing.T, *clienttest.Server) error { return nil },
			"2 conditions, StorageMigrating=False MigrationSucceeded: The migration has succeeded and the stored versions have been updated [v1]",
		},
		"changed": {
			func(t *testing.T, s *clienttest.Server) error {
				d := clienttest.Find(s, crds, "", crd.Name).DeepCopy()
				d.Generation++
				s.Set(t, d)
				return nil
			},
			"2 conditions, StorageMigrating=False MigrationSucceeded: The migration has succeeded but the stored versions have not been updated due to a generation mismatch [v1beta1 v1]",
		},
		"failure": {
			func(*testing.T, *clienttest.Server) error {
				return apierrors.NewForbidden(coordinationv1.Resource("leases"), "a", errors.New("no"))
			},
			"2 conditions, StorageMigrating=False MigrationFailed: The migration has failed [v1beta1 v1]",
		},
	} {
		t.Run(what, func(t *testing.T) {
			controllertest.Controlling(t, tasks, func(t *testing.T, s *clienttest.Server) {
				s.Intercept(func(r clienttest.Request) error {
					if r.Verb != "patch" || r.Resource != "leases" {
						return nil
					}
					if got, want := state(s), "2 conditions, StorageMigrating=True MigrationRunning: Migration m is running [v1beta1 v1]"; got != want {
						t.Errorf("while the migration runs the definition has %s, want %s", got, want)
					}
					return test.during(t, s)
				})
				m := migrationOf("m", "leases")
				m.Spec.Resource.Group = "coordination.k8s.io"
				if _, err := client.StorageVersionMigrations.Create(t.Context(), s, m); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if got := state(s); got != test.want {
					t.Errorf("after the migration the definition has %s, want %s", got, test.want)
				}
			}, crd.DeepCopy(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}})
		})
	}
}

func TestMigrationFailsWithItsReason(t *testing.T) {
	controllertest.Controlling(t, tasks, func(t *testing.T, s *clienttest.Server) {
		s.Intercept(func(r clienttest.Request) error {
			if r.Verb == "patch" && r.Name == "b" {
				return apierrors.NewForbidden(corev1.Resource("configmaps"), "b", errors.New("no"))
			}
			return nil
		})
		start(t, s)
		want := `Failed=True StorageVersionMigrationFailed: 1/1 not yet migrated. migration encountered unhandled error: configmaps "b" is forbidden: no`
		if got := conditions(s, "m"); !strings.Contains(got, want) {
			t.Errorf("the conditions are\n%s\nwant\n%s", got, want)
		}
	}, config("b"))
}

func TestMigrationGoesOnAfterFault(t *testing.T) {
	controllertest.Controlling(t, tasks, func(t *testing.T, s *clienttest.Server) {
		s.Intercept(func(r clienttest.Request) error {
			if r.Verb == "patch" {
				return apierrors.NewTooManyRequests("busy", 1)
			}
			return nil
		})
		start(t, s)
		if got := conditions(s, "m"); !strings.HasPrefix(got, "Running=True MigrationRunning: The migration is running, 1/1 objects not yet migrated; transient error: busy") {
			t.Errorf("the conditions are\n%s", got)
		}
		s.Intercept(nil)
		time.Sleep(time.Hour)
		if got := conditions(s, "m"); !strings.Contains(got, "Succeeded=True") {
			t.Errorf("the conditions are\n%s", got)
		}
	}, config("a"))
}

func TestUnknownResourceFailsAfterGrace(t *testing.T) {
	controllertest.Controlling(t, tasks, func(t *testing.T, s *clienttest.Server) {
		if got := conditions(s, "odd"); got != "" {
			t.Errorf("at once the conditions are\n%s", got)
		}
		time.Sleep(2 * time.Minute)
		if got := conditions(s, "odd"); got != "Failed=True StorageVersionMigrationFailed: resource does not exist in discovery" {
			t.Errorf("the conditions are\n%s", got)
		}
	}, migrationOf("odd", "widgets"))
}
