package podspec

import "k8s.io/apimachinery/pkg/util/validation/field"

// A where is the path of something in an object. Most specs have no fault, and then the path is not
// needed: every path below the zero where is zero as well, and takes no memory. See faults.
type where struct{ path *field.Path }

func (w where) child(name string, more ...string) where {
	if w.path == nil {
		return w
	}
	return where{w.path.Child(name, more...)}
}

func (w where) index(i int) where {
	if w.path == nil {
		return w
	}
	return where{w.path.Index(i)}
}

func (w where) key(k string) where {
	if w.path == nil {
		return w
	}
	return where{w.path.Key(k)}
}

// faults returns what check finds at a place: it checks nowhere at first, and only a
// spec with a fault once more, to say where. check must find the same each time.
func faults(at *field.Path, check func(at where) field.ErrorList) field.ErrorList {
	if len(check(where{})) == 0 {
		return nil
	}
	return check(where{at})
}
