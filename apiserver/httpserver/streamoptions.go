package httpserver

import (
	"encoding/json"
	"net/url"
	"reflect"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sampan-io/sampan/catalog"
)

// streamOptions returns the options of a stream, from the query of its URL. What does not fit a field is left out: the handler
// of the stream refuses it.
func streamOptions(stream catalog.Stream, query url.Values, rest string) runtime.Object {
	if stream.Body == nil || stream.New == nil {
		return nil
	}
	opts := stream.New()
	v := reflect.ValueOf(opts).Elem()
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		if values := query[name]; name != "" && len(values) > 0 {
			setOption(v.Field(i), values)
		}
	}
	if path := v.FieldByName("Path"); stream.Ported && path.IsValid() && path.Kind() == reflect.String && rest != "" {
		path.SetString(rest)
	}
	opts.GetObjectKind().SetGroupVersionKind(stream.Kind)
	return opts
}

func setOption(f reflect.Value, values []string) {
	switch f.Kind() {
	case reflect.String:
		f.SetString(values[0])
	case reflect.Bool:
		b, err := strconv.ParseBool(values[0])
		f.SetBool(b || err != nil) // an empty value is true
	case reflect.Slice:
		if f.Type().Elem().Kind() == reflect.String {
			f.Set(reflect.ValueOf(values).Convert(f.Type()))
			return
		}
		_ = json.Unmarshal([]byte("["+strings.Join(values, ",")+"]"), f.Addr().Interface())
	default:
		_ = json.Unmarshal([]byte(values[0]), f.Addr().Interface())
	}
}
