package roles_test

import (
	"strings"
	"testing"
	"testing/synctest"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/controller/controllertest"
	"github.com/sampan-io/sampan/controller/roles"
	"github.com/sampan-io/sampan/internal/leaktest"
	"github.com/sampan-io/sampan/internal/run"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func labelled(name string, lines ...string) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"to": "view"}}, Rules: rules(lines...)}
}

// TestAggregatedRolesFollow adds, changes and deletes roles that another one collects.
func TestAggregatedRolesFollow(t *testing.T) {
	view := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "view"}, AggregationRule: &rbacv1.AggregationRule{
		ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{"to": "view"}}},
	}}
	tasks := func(c client.Interface, caches *cache.Shared) []run.Task {
		return roles.Tasks(controllertest.Config(c, caches))
	}
	controllertest.Controlling(t, tasks, func(t *testing.T, s *clienttest.Server) {
		check := func(want string) {
			t.Helper()
			synctest.Wait()
			var got []string
			for _, r := range clienttest.Find(s, client.ClusterRoles, "", "view").Rules {
				got = append(got, r.Verbs[0]+" "+r.Resources[0])
			}
			if strings.Join(got, ", ") != want {
				t.Errorf("view has %q, want %q", got, want)
			}
		}
		check("get pods")
		s.Set(t, labelled("b", "get apps deployments"))
		check("get pods, get deployments")
		s.Set(t, labelled("a", "list core pods"))
		check("list pods, get deployments")
		s.Remove(t, labelled("b"))
		check("list pods")
	}, view, labelled("a", "get core pods"))
}
