package apiextensions

import "k8s.io/apimachinery/pkg/util/validation/field"

func validate(d, old *definition) (errs field.ErrorList) { return nil }

func validateStatus(d, old *definition) (errs field.ErrorList) { return nil }

func warn(d, old *definition) []string { return nil }
