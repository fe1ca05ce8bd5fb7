package clusters

import (
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/sampan-io/sampan/cluster/local"
)

// TestSettingsBecomeArguments sets each field of the settings alone, and checks that the arguments for the program in
// the background set the same: a field without a flag, or a flag that is not passed on, fails. The flags of the API
// server have one field: each of them is set.
func TestSettingsBecomeArguments(t *testing.T) {
	ofProgram := map[string]bool{"LastPort": true, "At": true, "Ancestors": true, "Fleet": true} // fields that no flag sets
	// the first of the type of a field that its flag accepts
	values := []any{
		[]string{t.TempDir(), "k=v"},
		t.TempDir(), 3, new(false), local.Duration(time.Hour),
		local.Controllers("*,-job"), local.ProxyMode("userspace"), local.RequestLog("writes"), local.IPFamily("dual"),
		local.Pair{netip.MustParsePrefix("10.77.0.0/16"), netip.MustParsePrefix("fd00:77::/56")},
	}
	var fields int
	check := func(name string, want local.Settings) {
		t.Helper()
		var got local.Settings
		cmd := &cobra.Command{}
		settingsFlags(cmd, &got)
		args := settingsArgs(want)
		if err := cmd.Flags().Parse(args); err != nil {
			t.Errorf("%s: the arguments %q: %v", name, args, err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: the arguments %q make\n%+v, want\n%+v", name, args, got, want)
		}
		fields++
	}
	var each func(name string, path []int, of reflect.Type)
	each = func(name string, path []int, of reflect.Type) {
		if ofProgram[name] {
			return
		}
		if i := slices.IndexFunc(values, func(v any) bool { return reflect.TypeOf(v) == of }); i >= 0 {
			var s local.Settings
			reflect.ValueOf(&s).Elem().FieldByIndex(path).Set(reflect.ValueOf(values[i]))
			check(name, s)
			return
		}
		switch {
		case of == reflect.TypeFor[local.ServerFlags]():
			for _, flag := range local.AllServerFlags() {
				var s local.Settings
				if err := (serverFlag{flag, &s.Server}).Set(valueOf(t, flag)); err != nil {
					t.Errorf("--%s: %v", flag.Name, err)
				}
				check("--"+flag.Name, s)
			}
		case of.Kind() == reflect.Struct:
			for i := range of.NumField() {
				each(of.Field(i).Name, append(slices.Clone(path), i), of.Field(i).Type)
			}
		default:
			t.Errorf("%s: this test has no value of the type %s", name, of)
		}
	}
	each("Settings", nil, reflect.TypeFor[local.Settings]())
	if fields < 50 {
		t.Errorf("%d settings were checked", fields)
	}
}

// valueOf returns a value of a flag of the API server that is not the default.
func valueOf(t *testing.T, f local.ServerFlag) string {
	if i := slices.IndexFunc(f.Allowed, func(v string) bool { return v != f.Default }); i >= 0 {
		return f.Allowed[i]
	}
	switch f.Kind {
	case local.InputFile, local.OutputFile:
		return t.TempDir()
	case local.Number:
		return "7"
	case local.Fraction:
		return "0.5"
	case local.Switch:
		return "true"
	case local.Period:
		return "7s"
	case local.Size:
		return "64Mi"
	case local.Text:
	}
	return "text"
}
