package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
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
	exitDone        = 0
	exitWrong       = 1
	exitFailed      = 2
	exitTimedOut    = 3
	exitGone        = 4
	exitRolledBack  = 5
	exitInterrupted = 130
)

// An exitError has an exit code of its own. Without err there is nothing more to
// say.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// A usageError says that the command line itself is wrong.
type usageError struct {
	command string
	err     error
}

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// flagError says what is wrong with a flag in words of the user, not of Go.
func flagError(err error) error {
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
	return fmt.Errorf("invalid argument %q for \"--%s\" flag: want %s", invalid.GetValue(), invalid.GetFlag().Name, want)
}

func exitCode(err error) int {
	var exit *exitError
	switch {
	case errors.As(err, &exit):
		return exit.code
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	case isGone(err):
		return exitGone
	}
	return exitWrong
}

// isGone reports whether all that went wrong is that objects which the command
// line names are not there. What an object in a file lacks is the file's fault.
func isGone(err error) bool {
	var source *resource.SourceError
	if joined, ok := err.(interface{ Unwrap() []error }); ok { // every one of the list counts
		errs := joined.Unwrap()
		for _, e := range errs {
			if !isGone(e) {
				return false
			}
		}
		return len(errs) > 0
	}
	return apierrors.IsNotFound(err) && !errors.As(err, &source)
}

// explain says an error in lines, each of which stands alone: errors of the
// server as kubectl prints them, failures to reach it with what to do.
func explain(err error) []string {
	if exit, ok := err.(*exitError); ok && exit.err != nil { //nolint:errorlint // what is around it would be lost
		return explain(exit.err)
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok { // only a list at the top has lines
		var lines []string
		for _, e := range joined.Unwrap() {
			lines = append(lines, explain(e)...)
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
		return []string{fmt.Sprintf("error: the cluster at %s %s. %s", unreachable.Server, whyUnreachable(unreachable.Err),
			"Is it up ('sampan status', 'sampan up')? Other clusters are chosen with --context or --kubeconfig")}
	}
	if apierrors.IsUnauthorized(err) {
		return []string{"error: the cluster does not accept the credentials in the kubeconfig (Unauthorized). Get a new kubeconfig: 'sampan kubeconfig' writes one for a cluster on this machine"}
	}
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		s := status.Status()
		message := s.Message
		// Where in the input it happened stands in front, if that is known.
		if errors.As(err, &place) && strings.HasSuffix(place.Error(), message) && place.Error() != message {
			message = place.Error()
		}
		message = wrongType.ReplaceAllStringFunc(message, explainType)
		if s.Reason == "" {
			return []string{"Error from server: " + message}
		}
		return []string{fmt.Sprintf("Error from server (%s): %s", s.Reason, message)}
	}
	return []string{"error: " + err.Error()}
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
	case is == "string":
		want = "a map of fields"
	}
	return fmt.Sprintf("field %q is a %s, want %s", field, is, want)
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
