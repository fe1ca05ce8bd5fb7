package migration_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	migrationv1 "k8s.io/api/storagemigration/v1"
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
