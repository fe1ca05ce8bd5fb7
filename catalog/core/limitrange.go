package core

import (
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/catalog/podspec"
)

func limitRanges() *catalog.Kind {
	return &catalog.Kind{
		GroupVersionKind: gvk("LimitRange"),
		Resource:         "limitranges",
		CreatedByUpdate:  true,
		Singular:         "limitrange",
		ShortNames:       []string{"limits"},
		Namespaced:       true,
		New:              func() catalog.Object { return &corev1.LimitRange{} },
		NewList:          func() runtime.Object { return &corev1.LimitRangeList{} },
		Default: catalog.Default(func(r *corev1.LimitRange) {
			for i := range r.Spec.Limits {
				defaultLimits(&r.Spec.Limits[i])
			}
		}),
		Validate: catalog.Validate(validateLimits),
		Columns:  []catalog.Column{catalog.Created()},
	}
}

// defaultLimits completes the limits of containers: the default limit is the maximum, and the
// default request the default limit or, without one, the minimum.
func defaultLimits(l *corev1.LimitRangeItem) {
	if l.Type == corev1.LimitTypeContainer {
		l.Default = completed(l.Default, l.Max)
		l.DefaultRequest = completed(completed(l.DefaultRequest, l.Default), l.Min)
	}
	for _, list := range []corev1.ResourceList{l.Max, l.Min, l.Default, l.DefaultRequest, l.MaxLimitRequestRatio} {
		podspec.RoundUp(list)
	}
}

// completed returns list with what only more has. It does not change list, and returns it if nothing is missing.
func completed(list, more corev1.ResourceList) corev1.ResourceList {
	shared := list != nil
	if list == nil {
		list = corev1.ResourceList{}
	}
	for name, q := range more {
		if _, ok := list[name]; ok {
			continue
		}
		if shared {
			list, shared = maps.Clone(list), false
		}
		list[name] = q.DeepCopy()
	}
	return list
}

func validateLimits(r, _ *corev1.LimitRange) (errs field.ErrorList) {
	seen := map[corev1.LimitType]bool{}
	for i := range r.Spec.Limits {
		l, at := &r.Spec.Limits[i], field.NewPath("spec", "limits").Index(i)
		errs = append(errs, validateLimitType(l.Type, at.Child("type"))...)
		if seen[l.Type] {
			errs = append(errs, field.Duplicate(at.Child("type"), l.Type))
		}
		seen[l.Type] = true
		errs = append(errs, validateLimit(l, at)...)
	}
	return errs
}

func validateLimitType(t corev1.LimitType, at *field.Path) (errs field.ErrorList) {
	for _, fault := range validation.IsQualifiedName(string(t)) {
		errs = append(errs, field.Invalid(at, t, fault))
	}
	known := t == corev1.LimitTypePod || t == corev1.LimitTypeContainer || t == corev1.LimitTypePersistentVolumeClaim
	if len(errs) == 0 && !known && !strings.Contains(string(t), "/") {
		errs = append(errs, field.Invalid(at, t, "must be a standard limit type or fully qualified"))
	}
	return errs
}

func validateLimit(l *corev1.LimitRangeItem, at *field.Path) (errs field.ErrorList) {
	defaults, requests := l.Default, l.DefaultRequest
	if l.Type == corev1.LimitTypePod {
		if len(defaults) > 0 {
			errs = append(errs, field.Forbidden(at.Child("default"), "may not be specified when `type` is 'Pod'"))
		}
		if len(requests) > 0 {
			errs = append(errs, field.Forbidden(at.Child("defaultRequest"), "may not be specified when `type` is 'Pod'"))
		}
		defaults, requests = nil, nil
	}
	all := map[corev1.ResourceName]bool{}
	for _, list := range []struct {
		name string
		of   corev1.ResourceList
	}{{"max", l.Max}, {"min", l.Min}, {"default", defaults}, {"defaultRequest", requests}, {"maxLimitRequestRatio", l.MaxLimitRequestRatio}} {
		for name := range list.of {
			all[name] = true
			rule := podspec.ValidateAnyResourceName
			if l.Type == corev1.LimitTypePod || l.Type == corev1.LimitTypeContainer {
				rule = podspec.ValidateContainerResourceName
			}
			errs = append(errs, rule(name, at.Child(list.name).Key(string(name)))...)
		}
	}
	if l.Type == corev1.LimitTypePersistentVolumeClaim {
		_, least := l.Min[corev1.ResourceStorage]
		if _, most := l.Max[corev1.ResourceStorage]; !least && !most {
			errs = append(errs, field.Required(at.Child("limits"), "either minimum or maximum storage value is required, but neither was provided"))
		}
	}
	for name := range all {
		errs = append(errs, validateOrder(name, l, defaults, requests, at)...)
	}
	return errs
}

// validateOrder checks that the bounds of one resource are in order: the minimum, the default
// request, the default limit, the maximum.
func validateOrder(name corev1.ResourceName, l *corev1.LimitRangeItem, defaults, requests corev1.ResourceList, at *field.Path) (errs field.ErrorList) {
	key := string(name)
	least, hasLeast := l.Min[name]
	most, hasMost := l.Max[name]
	limit, hasLimit := defaults[name]
	request, hasRequest := requests[name]
	// above adds a fault to a field if a, which is called what, is greater than b.
	above := func(both bool, a, b resource.Quantity, bad resource.Quantity, list, what, than string) {
		if both && a.Cmp(b) > 0 {
			errs = append(errs, field.Invalid(at.Child(list).Key(key), bad, fmt.Sprintf("%s value %s is greater than %s value %s", what, a.String(), than, b.String())))
		}
	}
	above(hasLeast && hasMost, least, most, least, "min", "min", "max")
	above(hasLeast && hasRequest, least, request, request, "defaultRequest", "min", "default request")
	above(hasRequest && hasMost, request, most, request, "defaultRequest", "default request", "max")
	above(hasRequest && hasLimit, request, limit, request, "defaultRequest", "default request", "default limit")
	above(hasLeast && hasLimit, least, limit, least, "default", "min", "default")
	above(hasLimit && hasMost, limit, most, most, "default", "default", "max")

	if ratio, ok := l.MaxLimitRequestRatio[name]; ok {
		at := at.Child("maxLimitRequestRatio").Key(key)
		if ratio.Cmp(resource.MustParse("1")) < 0 {
			errs = append(errs, field.Invalid(at, ratio, fmt.Sprintf("ratio %s is less than 1", ratio.String())))
		}
		if hasLeast && hasMost {
			if widest := most.AsApproximateFloat64() / least.AsApproximateFloat64(); ratio.AsApproximateFloat64() > widest {
				errs = append(errs, field.Invalid(at, ratio, fmt.Sprintf("ratio %s is greater than max/min = %f", ratio.String(), widest)))
			}
		}
	}
	if !podspec.CanShare(name) && hasLimit && hasRequest && limit.Cmp(request) != 0 {
		errs = append(errs, field.Invalid(at.Child("defaultRequest").Key(key), request,
			fmt.Sprintf("default value %s must equal to defaultRequest value %s in %s", limit.String(), request.String(), key)))
	}
	return errs
}
