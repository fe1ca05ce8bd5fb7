package local

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sampan-io/sampan/internal/sorting"
)

// ServerFlags are values of flags of the API server, which it has in common with kube-apiserver under the same names,
// and of its store: lines of NAME=VALUE in the order of names. A flag that is not there has its default. In JSON they
// are an object.
type ServerFlags string

// None is the value that takes back the path of a file.
const None = "none"

// A ServerFlag describes a flag of [ServerFlags].
type ServerFlag struct {
	Name    string
	Kind    FlagKind
	Default string   // empty: none
	Allowed []string // the values of a Text; none means any
	Usage   string
}

// A FlagKind is what values a flag has.
type FlagKind string

// The kinds of flags, by the name of the value in a help text.
const (
	InputFile  FlagKind = "file"     // exists; its path is made absolute; [None] takes it back
	OutputFile FlagKind = "path"     // the same, but it need not exist
	Text       FlagKind = "string"   //
	Number     FlagKind = "int"      //
	Fraction   FlagKind = "float"    //
	Switch     FlagKind = "bool"     // the flag alone means true
	Period     FlagKind = "duration" //
	Size       FlagKind = "size"     // of memory, in bytes, as a quantity (512Mi)
)

// AllServerFlags returns the flags in the order of their names.
func AllServerFlags() []ServerFlag {
	all := slices.Concat(encryptionFlags(), auditFlags(), storeFlags())
	sorting.Slice(all, func(a, b ServerFlag) int { return strings.Compare(a.Name, b.Name) })
	return all
}

func encryptionFlags() []ServerFlag {
	return []ServerFlag{
		{Name: "encryption-provider-config", Kind: InputFile, Usage: `file with an EncryptionConfiguration (apiserver.config.k8s.io/v1), which says how objects are encrypted on disk; "none" restores the default: Secrets, with keys of the cluster`},
		{Name: "encryption-provider-config-automatic-reload", Kind: Switch, Default: "false", Usage: "use a changed --encryption-provider-config without a restart"},
	}
}

// auditFlags are upstream's, with its defaults.
func auditFlags() []ServerFlag {
	all := []ServerFlag{
		{Name: "audit-policy-file", Kind: InputFile, Usage: `file with a Policy (audit.k8s.io/v1), which says what is recorded of requests; "none" records nothing (default none)`},
		{Name: "audit-log-path", Kind: OutputFile, Usage: `file to which audit events are written; "-" means standard output, and "none" no file (default none)`},
		{Name: "audit-log-maxage", Kind: Number, Default: "366", Usage: "days after which rotated audit logs are removed; 0 means never"},
		{Name: "audit-log-maxbackup", Kind: Number, Default: "100", Usage: "number of rotated audit logs that are kept; 0 means all"},
		{Name: "audit-log-maxsize", Kind: Number, Default: "100", Usage: "size in megabytes at which the audit log is rotated; 0 means never"},
		{Name: "audit-log-compress", Kind: Switch, Default: "false", Usage: "compress rotated audit logs with gzip"},
		{Name: "audit-log-format", Kind: Text, Default: "json", Allowed: []string{"json", "legacy"}, Usage: "format of the audit log: json or legacy"},
		{Name: "audit-webhook-config-file", Kind: InputFile, Usage: `kubeconfig with the address to which audit events are posted; "none" means nowhere (default none)`},
		{Name: "audit-webhook-initial-backoff", Kind: Period, Default: "10s", Usage: "pause before the first retry of a request to the audit webhook"},
	}
	for _, s := range []struct{ name, mode, batch, wait, throttle, qps, burst string }{
		{"log", "blocking", "1", "0s", "false", "0", "0"}, {"webhook", "batch", "400", "30s", "true", "10", "15"},
	} {
		flag := "audit-" + s.name + "-"
		all = append(
			all,
			ServerFlag{Name: flag + "version", Kind: Text, Default: "audit.k8s.io/v1", Usage: "API version of audit events in the " + s.name},
			ServerFlag{Name: flag + "mode", Kind: Text, Default: s.mode, Allowed: []string{"batch", "blocking", "blocking-strict"}, Usage: "whether requests wait for the audit " + s.name + ": batch (no), blocking, or blocking-strict (a request that cannot be recorded fails)"},
			ServerFlag{Name: flag + "batch-buffer-size", Kind: Number, Default: "10000", Usage: "audit events that wait for the " + s.name + " in the mode batch; more are dropped"},
			ServerFlag{Name: flag + "batch-max-size", Kind: Number, Default: s.batch, Usage: "largest number of audit events in a batch for the " + s.name},
			ServerFlag{Name: flag + "batch-max-wait", Kind: Period, Default: s.wait, Usage: "how long a batch for the audit " + s.name + " waits for more events"},
			ServerFlag{Name: flag + "batch-throttle-enable", Kind: Switch, Default: s.throttle, Usage: "limit the rate of batches for the audit " + s.name},
			ServerFlag{Name: flag + "batch-throttle-qps", Kind: Fraction, Default: s.qps, Usage: "average number of batches per second for the audit " + s.name},
			ServerFlag{Name: flag + "batch-throttle-burst", Kind: Number, Default: s.burst, Usage: "number of batches at once for the audit " + s.name},
			ServerFlag{Name: flag + "truncate-enabled", Kind: Switch, Default: "false", Usage: "bound the sizes of audit events and batches for the " + s.name},
			ServerFlag{Name: flag + "truncate-max-batch-size", Kind: Number, Default: "10485760", Usage: "largest size of a batch for the audit " + s.name + ", in bytes"},
			ServerFlag{Name: flag + "truncate-max-event-size", Kind: Number, Default: "102400", Usage: "largest size of an audit event for the " + s.name + ", in bytes; larger events lose their bodies, or are dropped"},
		)
	}
	return all
}

// Parse checks a value and returns it as it is kept.
func (f ServerFlag) Parse(value string) (string, error) {
	if strings.ContainsAny(value, "\n\x00") {
		return "", errors.New("must be one line")
	}
	var err error
	switch f.Kind {
	case InputFile, OutputFile:
		switch value {
		case "":
			return "", errors.New("must be the path of a file")
		case None, "-":
			return value, nil
		}
		if value, err = filepath.Abs(value); err == nil && f.Kind == InputFile {
			_, err = os.Stat(value)
		}
		return value, err
	case Number:
		var n int
		if n, err = strconv.Atoi(value); err == nil {
			value = strconv.Itoa(n)
		}
	case Fraction:
		_, err = strconv.ParseFloat(value, 32)
	case Switch:
		var on bool
		if on, err = strconv.ParseBool(value); err == nil {
			value = strconv.FormatBool(on)
		}
	case Period:
		var d time.Duration
		if d, err = time.ParseDuration(value); err == nil {
			value = d.String()
		}
	case Size:
		_, err = parseSize(value)
	case Text:
		if len(f.Allowed) > 0 && !slices.Contains(f.Allowed, value) {
			err = fmt.Errorf("must be one of %s", strings.Join(f.Allowed, ", "))
		}
	}
	return value, err
}

// Alone returns the value that the flag without one has, or "" if it needs one.
func (f ServerFlag) Alone() string {
	if f.Kind == Switch {
		return "true"
	}
	return ""
}

// values returns the values by name.
func (s ServerFlags) values() map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(string(s)) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		out[name] = value
	}
	return out
}

func serverFlags(values map[string]string) ServerFlags {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(values)) {
		fmt.Fprintf(&b, "%s=%s\n", name, values[name])
	}
	return ServerFlags(b.String())
}

// Get returns the value of a flag, or "" if it is not there.
func (s ServerFlags) Get(name string) string { return s.values()[name] }

// Value returns the value of a flag, or its default if it is not there.
func (s ServerFlags) Value(name string) string {
	if v, ok := s.values()[name]; ok {
		return v
	}
	all := AllServerFlags()
	if i := slices.IndexFunc(all, func(f ServerFlag) bool { return f.Name == name }); i >= 0 {
		return all[i].Default
	}
	return ""
}

// On reports whether a switch is true.
func (s ServerFlags) On(name string) bool { return s.Get(name) == "true" }

// Set sets the value of a flag, which [ServerFlag.Parse] has returned.
func (s *ServerFlags) Set(name, value string) {
	all := s.values()
	all[name] = value
	*s = serverFlags(all)
}

// Args returns the arguments that set the flags.
func (s ServerFlags) Args() []string {
	var args []string
	for line := range strings.Lines(string(s)) {
		args = append(args, "--"+strings.TrimSuffix(line, "\n"))
	}
	return args
}

// with returns the flags with the ones that were passed this time. A path that was taken back is gone.
func (s ServerFlags) with(asked ServerFlags) ServerFlags {
	all := s.values()
	maps.Copy(all, asked.values())
	maps.DeleteFunc(all, func(_, value string) bool { return value == None })
	return serverFlags(all)
}

// differ returns the first flag that has another value in wanted, or false.
func (s ServerFlags) differ(wanted ServerFlags) (flag ServerFlag, is, want string, found bool) {
	a, b := s.values(), wanted.values()
	for _, f := range AllServerFlags() {
		or := func(value string) string {
			if value != "" {
				return value
			}
			if f.Default == "" && f.Kind != Text {
				return None
			}
			return f.Default
		}
		if is, want = or(a[f.Name]), or(b[f.Name]); is != want {
			return f, is, want, true
		}
	}
	return ServerFlag{}, "", "", false
}

// check returns an error for the first flag that is not known or has a bad value.
func (s ServerFlags) check() error {
	all := s.values()
	for _, f := range AllServerFlags() {
		value, ok := all[f.Name]
		if !ok {
			continue
		}
		delete(all, f.Name)
		if _, err := f.Parse(value); err != nil && f.Kind != InputFile {
			return fmt.Errorf("--%s: %w", f.Name, err)
		}
	}
	for name := range all {
		return fmt.Errorf("--%s: unknown flag", name)
	}
	return nil
}

// MarshalJSON implements [json.Marshaler].
func (s ServerFlags) MarshalJSON() ([]byte, error) { return json.Marshal(s.values()) }

// UnmarshalJSON implements [json.Unmarshaler].
func (s *ServerFlags) UnmarshalJSON(data []byte) error {
	var all map[string]string
	if err := json.Unmarshal(data, &all); err != nil {
		return err
	}
	*s = serverFlags(all)
	return nil
}
