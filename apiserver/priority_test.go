package apiserver_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/apiserver"
	"github.com/sampan-io/sampan/apiserver/apiservertest"
	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/catalog/flowcontrol"
	"github.com/sampan-io/sampan/internal/run"
)

var (
	schemaGVR = flowcontrolv1.SchemeGroupVersion.WithResource("flowschemas")
	levelGVR  = flowcontrolv1.SchemeGroupVersion.WithResource("prioritylevelconfigurations")
)

// impersonated makes a request as an administrator who acts as another user.
func impersonated(s *apiserver.Server, as, path string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.Header.Set("X-User", "admin")
	r.Header.Set("X-Group", "system:masters")
	if as != "" {
		r.Header.Set("Impersonate-User", as)
		r.Header.Set("Impersonate-Group", "system:authenticated")
	}
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	return w
}

// This is what the conformance test of upstream does.
func TestRequestsAreClassifiedByStoredObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := apiservertest.Open(t, func(o *apiserver.Options) { o.Auth = byHeader{} })
		g := run.NewGroup(t.Context(), 0)
		defer g.Stop()
		g.Go(func(ctx context.Context) { _ = s.FollowFlowControl(ctx) })
		admin := s.As(auth.User{Name: "admin", Groups: []string{"system:masters"}})
		create := func(obj catalog.Object) catalog.Object {
			t.Helper()
			gvr := levelGVR
			if _, ok := obj.(*flowcontrolv1.FlowSchema); ok {
				gvr = schemaGVR
			}
			made, err := admin.Create(t.Context(), gvr, "", "", obj, metav1.CreateOptions{}, "")
			if err != nil {
				t.Fatal(err)
			}
			return made.(catalog.Object)
		}
		for _, l := range append(flowcontrol.MandatoryLevels(), flowcontrol.SuggestedLevels()...) {
			create(l)
		}
		for _, f := range append(flowcontrol.MandatorySchemas(), flowcontrol.SuggestedSchemas()...) {
			create(f)
		}
		mine := flowcontrol.SuggestedLevels()[0]
		mine.Name = "mine"
		schema := flowcontrol.SuggestedSchemas()[0]
		schema.Name, schema.Spec.MatchingPrecedence, schema.Spec.PriorityLevelConfiguration.Name = "mine", 1000, "mine"
		schema.Spec.Rules[0].Subjects = []flowcontrolv1.Subject{{Kind: "User", User: &flowcontrolv1.UserSubject{Name: "noxu"}}}
		made := create(schema)
		condition := func(want string) {
			t.Helper()
			time.Sleep(3 * time.Second)
			synctest.Wait()
			obj, err := admin.Get(t.Context(), schemaGVR, "", "mine", "")
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, c := range obj.(*flowcontrolv1.FlowSchema).Status.Conditions {
				got += fmt.Sprintf("%s=%s %s", c.Type, c.Status, c.Reason)
			}
			if got != want {
				t.Errorf("conditions %s, want %s", got, want)
			}
		}
		condition("Dangling=True NotFound")
		level := create(mine)
		condition("Dangling=False Found")
		_, before, _ := admin.List(t.Context(), schemaGVR, "", metav1.ListOptions{})
		time.Sleep(time.Hour)
		if _, after, _ := admin.List(t.Context(), schemaGVR, "", metav1.ListOptions{}); before.ResourceVersion != after.ResourceVersion {
			t.Error("statuses are written again and again")
		}

		w := impersonated(s, "noxu", "/version")
		if got := w.Header().Get(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID); got != string(made.GetUID()) {
			t.Errorf("schema %q, want %q", got, made.GetUID())
		}
		if got := w.Header().Get(flowcontrolv1.ResponseHeaderMatchedPriorityLevelConfigurationUID); got != string(level.GetUID()) {
			t.Errorf("level %q, want %q", got, level.GetUID())
		}
		w = impersonated(s, "foo", "/version")
		if got := w.Header().Get(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID); got == "" || got == string(made.GetUID()) {
			t.Errorf("the schema of another user is %q", got)
		}
		if w := impersonated(s, "", "/metrics"); !strings.Contains(w.Body.String(), `apiserver_flowcontrol_nominal_limit_seats{priority_level="mine"}`) {
			t.Error("the metrics lack the level")
		}
		if w := impersonated(s, "", "/debug/api_priority_and_fairness/dump_priority_levels"); w.Code != 200 || !strings.Contains(w.Body.String(), "mine,") {
			t.Errorf("dump: %d %s", w.Code, w.Body)
		}
		if w := impersonated(s, "noxu", "/debug/api_priority_and_fairness/dump_priority_levels"); w.Code != 403 {
			t.Errorf("a user may see the dump: %d", w.Code)
		}
		if err := admin.Delete(t.Context(), levelGVR, "", "mine", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		condition("Dangling=True NotFound")
		w = impersonated(s, "noxu", "/version")
		if got := w.Header().Get(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID); got == string(made.GetUID()) {
			t.Error("a dangling schema is used")
		}
	})
}
