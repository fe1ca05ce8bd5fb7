package changes

import "maps"

const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// Mask returns two states of a Secret with masks in place of values, in kubectl's words: one can see which values
// differ. Either may be nil. Both are left as they are.
func Mask(before, after map[string]any) (a, b map[string]any) {
	a, b = maps.Clone(before), maps.Clone(after)
	for _, name := range []string{"data", "stringData"} {
		maskMaps(a, b, name, func(string) bool { return true })
	}
	a, b = withMetadata(a), withMetadata(b)
	maskMaps(metadata(a), metadata(b), "annotations", func(key string) bool { return key == lastApplied })
	return a, b
}

func metadata(obj map[string]any) map[string]any {
	m, _ := obj["metadata"].(map[string]any)
	return m
}

// withMetadata gives an object metadata of its own.
func withMetadata(obj map[string]any) map[string]any {
	if m := metadata(obj); m != nil {
		obj["metadata"] = maps.Clone(m)
	}
	return obj
}

// maskMaps masks the values of a field that are to be masked.
func maskMaps(a, b map[string]any, field string, masks func(key string) bool) {
	before, _ := a[field].(map[string]any)
	after, _ := b[field].(map[string]any)
	before, after = maps.Clone(before), maps.Clone(after)
	for key, value := range before {
		other, both := after[key]
		switch {
		case !masks(key):
		case !both:
			before[key] = "***"
		case other == value:
			before[key], after[key] = "***", "***"
		default:
			before[key], after[key] = "*** (before)", "*** (after)"
		}
	}
	for key := range after {
		if _, both := before[key]; !both && masks(key) {
			after[key] = "***"
		}
	}
	if before != nil {
		a[field] = before
	}
	if after != nil {
		b[field] = after
	}
}
