package apiserver_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/apiserver"
	"github.com/sampan-io/sampan/store"
)

// TestQuotaOfMemory fills a store, and looks at what its users, nodes and the administrator can still do.
func TestQuotaOfMemory(t *testing.T) {
	const quota = 2 << 20
	f := serve(t, func(o *apiserver.Options) {
		o.Store = memory(t, store.Options{Quota: quota})
		o.Authorizer = everything{}
	})
	held := configMap("held")
	held.Finalizers = []string{"example.com/hold"}
	f.create(configMaps, held)
	f.create("/api/v1/nodes", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	fill := func(size int) (last answer, n int) {
		for i := range 1000 {
			cm := configMap(fmt.Sprintf("c%d-%d", size, i))
			cm.Data["k"] = strings.Repeat("x", size)
			if last = f.do("POST", configMaps, cm); last.code != 201 {
				return last, i
			}
		}
		t.Fatal("no end of objects")
		return last, 0
	}
	if a := f.do("GET", "/readyz/store-quota", nil); a.code != 200 || string(a.body) != "ok" {
		t.Errorf("the check of the quota: %d %s", a.code, a.body)
	}
	_, n := fill(100_000)
	if n == 0 || n > quota/100_000 {
		t.Errorf("%d objects of 100 kB in a quota of %d bytes", n, quota)
	}
	refused, _ := fill(100)
	if a := f.do("GET", "/readyz/store-quota", nil); a.code != 500 || !strings.Contains(string(a.body), "delete objects, or have the administrator") {
		t.Errorf("the check of the used up quota: %d %s", a.code, a.body)
	}
	for _, path := range []string{"/readyz", "/healthz", "/livez"} {
		if a := f.do("GET", path, nil); a.code != 200 {
			t.Errorf("%s while the quota is used up: %d %s", path, a.code, a.body)
		}
	}
	f.refused(refused, 507, "InsufficientStorage", "--store-quota")
	f.refused(refused, 507, "InsufficientStorage", "delete objects")
	f.refused(f.do("PATCH", configMaps+"/c100-0", `{"data":{"more":"`+strings.Repeat("x", 5000)+`"}}`, merge), 507, "InsufficientStorage", "")
	f.refused(f.do("PUT", configMaps+"/c100-0", func() *corev1.ConfigMap {
		cm := configMap("c100-0")
		cm.Data["k"] = strings.Repeat("x", 5000)
		return cm
	}()), 507, "InsufficientStorage", "")

	if a := f.do("GET", configMaps+"?limit=1", nil); a.code != 200 {
		t.Errorf("a list: %d %s", a.code, a.body)
	}
	if a := f.do("DELETE", configMaps+"/held", nil); a.code != 200 {
		t.Errorf("the begin of a deletion: %d %s", a.code, a.body)
	}
	if a := f.do("PATCH", configMaps+"/held", `{"metadata":{"annotations":{"note":"on its way"}}}`, merge); a.code != 200 {
		t.Errorf("an update of what is being deleted: %d %s", a.code, a.body)
	}
	f.refused(f.do("PATCH", configMaps+"/held", `{"data":{"k":"`+strings.Repeat("x", 500_000)+`"}}`, merge), 507, "InsufficientStorage", "")
	if a := f.do("PATCH", configMaps+"/held", `{"metadata":{"finalizers":null}}`, merge); a.code != 200 {
		t.Errorf("the end of a deletion: %d %s", a.code, a.body)
	}
	if a := f.do("PATCH", configMaps+"/c100-0", `{"data":null}`, merge); a.code != 200 {
		t.Errorf("an update that frees memory: %d %s", a.code, a.body)
	}
	if a := f.do("DELETE", configMaps+"/c100000-0", nil); a.code != 200 {
		t.Errorf("a deletion: %d %s", a.code, a.body)
	}
	if a := f.do("POST", configMaps, configMap("again")); a.code != 201 {
		t.Errorf("after it: %d %s", a.code, a.body)
	}
}
