package core

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/catalog"
)

// Kinds returns the kinds of the core group.
func Kinds() []*catalog.Kind {
	return []*catalog.Kind{
		componentStatuses(),
		configMaps(),
		endpoints(),
		events(),
		limitRanges(),
		namespaces(),
		nodes(),
		persistentVolumeClaims(),
		persistentVolumes(),
		pods(),
		podTemplates(),
		replicationControllers(),
		resourceQuotas(),
		secrets(),
		serviceAccounts(),
		services(),
	}
}

func gvk(kind string) schema.GroupVersionKind { return corev1.SchemeGroupVersion.WithKind(kind) }

// Verbs of subresources.
var (
	readWrite = []string{"get", "patch", "update"}
	create    = []string{"create"}
	update    = []string{"update"}
)
