package exit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sampan-io/sampan/cli/resource"
	"github.com/sampan-io/sampan/client"
)

// The exit codes; see the package comment.
const (
	Done        = 0
	Wrong       = 1
	Failed      = 2
	TimedOut    = 3
	Gone        = 4
	RolledBack  = 5
	Interrupted = 130

	Ours = 125 // of a command that stands for one in a container: a failure that is not that one's
)

// An Error has an exit code of its own. Without Err there is nothing more to say.
type Error struct {
	Code int
	Err  error
}

// Error implements error.
func (e *Error) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

// Unwrap returns what went wrong; nil if there is nothing to say.
func (e *Error) Unwrap() error { return e.Err }

// A UsageError says that the command line itself is wrong: that of Command, all its words.
type UsageError struct {
	Command string
	Err     error
}

// Error implements error.
func (e *UsageError) Error() string { return e.Err.Error() }

// Unwrap returns the fault of the command line.
func (e *UsageError) Unwrap() error { return e.Err }

// With returns an error with an exit code of its own; without err there is nothing
// more to say.
func With(code int, err error) error { return &Error{code, err} }

// Usage returns err as the fault of a command line of that command.
func Usage(command string, err error) error { return &UsageError{command, err} }

// A PrintedError is an error that has been printed. It keeps its exit code.
type PrintedError struct{ Err error }

// Error implements error.
func (e *PrintedError) Error() string { return e.Err.Error() }

// Unwrap returns the error.
func (e *PrintedError) Unwrap() error { return e.Err }

// OfFlag returns the fault of a flag in words of the user, not of Go.
func OfFlag(err error) error {
	var (
		invalid *pflag.InvalidValueError
		number  *strconv.NumError
	)
	if !errors.As(err, &invalid) {
		return err
	}
	want := ""
	switch kind := invalid.GetFlag().Value.Type(); {
	case kind == "duration":
		want = "a duration such as 30s, 5m or 1h30m"
	case kind == "bool":
		want = "true or false"
	case errors.As(err, &number) && errors.Is(number.Err, strconv.ErrRange):
		want = "a smaller number"
	case errors.As(err, &number):
		want = "a whole number"
	default:
		return err
	}
	return fmt.Errorf("invalid argument %q for \"--%s\" flag: must be %s", invalid.GetValue(), invalid.GetFlag().Name, want)
}

// Code returns the exit code that an error means; it is not for nil.
func Code(err error) int {
	var exit *Error
	switch {
	case errors.As(err, &exit):
		return exit.Code
	case errors.Is(err, context.Canceled):
		return Interrupted
	case IsGone(err):
		return Gone
	}
	return Wrong
}

// IsGone reports whether all that went wrong is that objects the command
// line names do not exist. An object of a file that lacks something is an error of the file.
func IsGone(err error) bool {
	var source *resource.SourceError
	if printed, ok := err.(*PrintedError); ok { //nolint:errorlint // what is around it would be lost
		return IsGone(printed.Err)
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok { // every one of the list counts
		errs := joined.Unwrap()
		for _, e := range errs {
			if !IsGone(e) {
				return false
			}
		}
		return len(errs) > 0
	}
	return apierrors.IsNotFound(err) && !errors.As(err, &source)
}

// Explain says an error in lines, each of which stands alone: errors of the
// server as kubectl prints them, failures to reach it with what to do. The function returns the flag that names
// the cluster for a command line, with a space before it, or "" for the default cluster.
func Explain(err error, cluster func() string) []string {
	if exit, ok := err.(*Error); ok && exit.Err != nil { //nolint:errorlint // what is around it would be lost
		return Explain(exit.Err, cluster)
	}
	if _, ok := err.(*PrintedError); ok { //nolint:errorlint // what is around it is not printed
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok { // only a list at the top has lines
		var lines []string
		for _, e := range joined.Unwrap() {
			lines = append(lines, Explain(e, cluster)...)
		}
		return lines
	}
	var (
		unreachable *client.UnreachableError
		certificate *client.CertificateError
		place       interface {
			error
			Unwrap() error
		}
	)
	switch {
	case errors.As(err, &certificate):
		advice := "Check the clock of this machine and of the server"
		if certificate.Client {
			advice = "Get a new kubeconfig: 'sampan kubeconfig' writes one for a cluster on this machine"
		}
		return []string{fmt.Sprintf("error: %v. %s", certificate, advice)}
	case errors.As(err, &unreachable):
		if !onThisMachine(unreachable.Server) && cluster() == "" {
			return []string{fmt.Sprintf("error: the cluster at %s %s. Check that it runs, and the network to it, or use another cluster with --context or --kubeconfig",
				unreachable.Server, whyUnreachable(unreachable.Err))}
		}
		return []string{fmt.Sprintf("error: the cluster at %s %s. Check it with 'sampan status%[3]s' and start it with 'sampan up%[3]s', "+
			"or use another cluster with --context or --kubeconfig", unreachable.Server, whyUnreachable(unreachable.Err), cluster())}
	}
	if apierrors.IsUnauthorized(err) {
		return []string{"error: the cluster does not accept the credentials in the kubeconfig (Unauthorized). Get a new kubeconfig: 'sampan kubeconfig' writes one for a cluster on this machine"}
	}
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		s := status.Status()
		message := s.Message
		// Where in the input it happened stands in front, if that is known, and what to do
		// about it behind.
		if errors.As(err, &place) && strings.Contains(place.Error(), message) {
			message = place.Error()
		}
		message = wrongType.ReplaceAllStringFunc(message, explainType)
		if s.Reason == "" {
			return []string{"Error from server: " + message}
		}
		return []string{fmt.Sprintf("Error from server (%s): %s", s.Reason, message)}
	}
	return []string{"error: " + wrongType.ReplaceAllStringFunc(err.Error(), explainType)}
}

// onThisMachine reports whether a server's URL has an address of this machine alone, as clusters that Sampan starts have.
func onThisMachine(server string) bool {
	u, err := url.Parse(server)
	if err != nil {
		return false
	}
	host := u.Hostname()
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.Unmap().IsLoopback()
}

// wrongType is what API servers say about a field of the wrong type: the words of
// encoding/json.
var wrongType = regexp.MustCompile(`json: cannot unmarshal (\S+) into Go struct field [^.\s]+\.(\S+) of type (\S+)`)

func explainType(text string) string {
	m := wrongType.FindStringSubmatch(text)
	is, field, goType := m[1], m[2], m[3]
	switch is {
	case "array":
		is = "list"
	case "object":
		is = "map"
	case "bool":
		is = "boolean"
	}
	want := "a " + goType
	switch {
	case strings.HasPrefix(goType, "[]"):
		want = "a list"
	case strings.HasPrefix(goType, "map["):
		want = "a map"
	case strings.HasPrefix(goType, "int"), strings.HasPrefix(goType, "uint"):
		want = "a whole number"
	case goType == "bool":
		want = "true or false"
	case goType == "string", is == "map": // it would do for anything else with a name
		want = "a string"
	case is == "string", strings.Contains(goType, "."): // a struct
		want = "a map of fields"
	}
	return fmt.Sprintf("field %q must be %[3]s, got a %[2]s", field, is, want)
}

func whyUnreachable(err error) string {
	var (
		dns     *net.DNSError
		timeout interface{ Timeout() bool }
	)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused the connection: nothing listens there"
	case errors.As(err, &dns):
		return fmt.Sprintf("cannot be found: no address for %q", dns.Name)
	case errors.Is(err, fs.ErrNotExist):
		return "cannot be reached: " + err.Error()
	case errors.As(err, &timeout) && timeout.Timeout():
		return "did not answer in time"
	case strings.Contains(err.Error(), "x509: "): // crypto/tls wraps some of these in plain errors
		return "is not the one the kubeconfig trusts (" + err.Error() + ")"
	}
	return "cannot be reached: " + err.Error()
}
