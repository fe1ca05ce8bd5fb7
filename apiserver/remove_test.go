package apiserver_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestDeleteAnswersAsUpstream deletes an object of each of these resources, at first in a dry run.
func TestDeleteAnswersAsUpstream(t *testing.T) {
	f := serve(t)
	const core, storage, devices = "/api/v1/namespaces/default/", "/apis/storage.k8s.io/v1/", "/apis/resource.k8s.io/v1/"
	for _, c := range []struct {
		path, body string
		object     bool
	}{
		{core + "configmaps", `{}`, false},
		{core + "secrets", `{}`, false},
		{core + "endpoints", `{}`, false},
		{core + "limitranges", `{"spec":{"limits":[]}}`, false},
		{core + "serviceaccounts", `{}`, true},
		{core + "services", `{"spec":{"clusterIP":"None"}}`, true},
		{core + "podtemplates", `{"template":{"metadata":{},"spec":{"containers":[{"name":"c","image":"i"}]}}}`, true},
		{core + "resourcequotas", `{"spec":{}}`, true},
		{core + "pods?gracePeriodSeconds=0", `{"spec":{"containers":[{"name":"c","image":"i"}]}}`, true},
		{storage + "storageclasses", `{"provisioner":"p"}`, true},
		{storage + "csidrivers", `{"spec":{}}`, true},
		{storage + "csinodes", `{"spec":{"drivers":[]}}`, true},
		{storage + "volumeattachments", `{"spec":{"attacher":"a","nodeName":"n","source":{"persistentVolumeName":"p"}}}`, true},
		{storage + "namespaces/default/csistoragecapacities", `{"storageClassName":"s"}`, false},
		{devices + "deviceclasses", `{"spec":{}}`, true},
		{devices + "namespaces/default/resourceclaims", `{"spec":{}}`, true},
		{devices + "namespaces/default/resourceclaimtemplates", `{"spec":{"spec":{}}}`, true},
		{"/apis/apps/v1/namespaces/default/controllerrevisions", `{"revision":1,"data":{}}`, false},
		{"/apis/scheduling.k8s.io/v1/priorityclasses", `{"value":1}`, false},
	} {
		path, query, _ := strings.Cut(c.path, "?")
		body := strings.Replace(c.body, "{", `{"metadata":{"name":"x"},`, 1)
		if a := f.do("POST", path, strings.Replace(body, ",}", "}", 1)); a.code != http.StatusCreated {
			t.Errorf("%s: %d %s", path, a.code, a.body)
			continue
		}
		for _, more := range []string{"dryRun=All", ""} {
			a := f.do("DELETE", path+"/x?"+query+"&"+more, nil)
			var got struct {
				metav1.TypeMeta
				Metadata metav1.ObjectMeta
				Details  *metav1.StatusDetails
				Code     int
			}
			if err := json.Unmarshal([]byte(a.body), &got); err != nil || a.code != http.StatusOK {
				t.Fatalf("%s: %d %s: %v", path, a.code, a.body, err)
			}
			if is := got.Kind != "Status"; is != c.object {
				t.Errorf("%s: the answer is the object: %v, want %v: %s", path, is, c.object, a.body)
			}
			if c.object && (got.Metadata.Name != "x" || got.Metadata.UID == "" || got.Metadata.ResourceVersion == "" || got.APIVersion == "") ||
				!c.object && (got.Details == nil || got.Details.UID == "" || got.Code != 0) {
				t.Errorf("%s: %s", path, a.body)
			}
			if strings.Contains(path, "/pods") && (got.Metadata.DeletionTimestamp == nil || *got.Metadata.DeletionGracePeriodSeconds != 0) {
				t.Errorf("the deleted pod is %s", a.body)
			}
		}
		if a := f.do("GET", path+"/x", nil); a.code != http.StatusNotFound {
			t.Errorf("%s: after the deletion %d", path, a.code)
		}
	}
}

func TestActionsAnswerWithCode(t *testing.T) {
	f := serve(t)
	for _, name := range []string{"a", "b"} {
		if a := f.do("POST", pods, pod(name)); a.code != http.StatusCreated {
			t.Fatalf("%d %s", a.code, a.body)
		}
	}
	for path, body := range map[string]string{
		pods + "/a/binding":  `{"metadata":{"name":"a"},"target":{"name":"n"}}`,
		pods + "/b/eviction": `{"metadata":{"name":"b"}}`,
	} {
		if a := f.do("POST", path, body); a.code != http.StatusCreated || !strings.Contains(string(a.body), `"code":201`) {
			t.Errorf("%s: %d %s", path, a.code, a.body)
		}
	}
}
