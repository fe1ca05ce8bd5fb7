package catalog

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Created is the column that says when an object was created (RFC 3339). Kinds without columns of
// their own have it in Kubernetes' tables.
func Created() Column {
	return Column{
		TableColumnDefinition: metav1.TableColumnDefinition{Name: "Created At", Type: "date", Description: metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"]},
		Cell: func(obj Object, _ time.Time) any {
			return obj.GetCreationTimestamp().UTC().Format(time.RFC3339)
		},
	}
}
