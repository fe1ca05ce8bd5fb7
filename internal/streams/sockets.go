package streams

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	utilexec "k8s.io/utils/exec"

	"github.com/sampan-io/sampan/internal/channels"
	"github.com/sampan-io/sampan/internal/lingering"
	"github.com/sampan-io/sampan/internal/run"
)

// Protocols of WebSockets with channels. The first two have errors as text, the others a Status.
const (
	unnamed  = ""
	v1Binary = "channel.k8s.io"
	v1Base64 = "base64." + v1Binary
	v4Binary = "v4." + v1Binary
	v4Base64 = "v4." + v1Base64
	v5Binary = "v5." + v1Binary
)

// Channels of a command.
const (
	stdinChannel = iota
	stdoutChannel
	stderrChannel
	errorChannel
	resizeChannel
)

// mostPorts is how many ports have channels with numbers of one byte.
const mostPorts = 127

// serveChannels runs a command for the client of a WebSocket.
func (s *Server) serveChannels(w http.ResponseWriter, r *http.Request, c Command) {
	kinds := []channels.Kind{errorChannel: channels.Write, resizeChannel: channels.Read}
	if c.Asked.Stdin {
		kinds[stdinChannel] = channels.Read
	}
	established := errorChannel // gets an empty message
	if c.Asked.Stderr {
		kinds[stderrChannel], established = channels.Write, stderrChannel
	}
	if c.Asked.Stdout {
		kinds[stdoutChannel], established = channels.Write, stdoutChannel
	}
	g := run.NewGroup(context.WithoutCancel(r.Context()), 0)
	defer g.Wait() // the end of the connection ends the reading of sizes
	err := s.sockets.Serve(w, r, channels.Options{
		Protocols: []string{unnamed, v1Binary, v1Base64, v4Binary, v4Base64, v5Binary}, Kinds: kinds, Idle: lingering.Limit,
	}, func(conn *channels.Conn) {
		if _, err := conn.Channel(established).Write(nil); err != nil {
			return // the client has gone
		}
		sizes := make(chan channels.Size, 1)
		g.Go(func(context.Context) { channels.ReadSizes(conn.Channel(resizeChannel), sizes) })
		result := s.run(r.Context(), c, Client{
			Stdin: conn.Channel(stdinChannel), Stdout: conn.Channel(stdoutChannel), Stderr: conn.Channel(stderrChannel), Resize: sizes,
		})
		if text := resultText(conn.Protocol(), result, c.Failed); text != nil {
			_, _ = conn.Channel(errorChannel).Write(text) // a client that has gone needs none
		}
	})
	if err != nil {
		s.log().Debug("a WebSocket was refused", "err", err)
	}
}

// Values in the result of a command that ends with a code, as the API has them.
const (
	nonZeroExitCode = "NonZeroExitCode"
	exitCode        = "ExitCode"
)

// A result is a Status of the API, as far as it says how a command has ended.
type result struct {
	Metadata *struct{}      `json:"metadata,omitempty"`
	Status   string         `json:"status"`
	Message  string         `json:"message,omitempty"`
	Reason   string         `json:"reason,omitempty"`
	Details  *resultDetails `json:"details,omitempty"`
	Code     int            `json:"code,omitempty"`
}

type resultDetails struct {
	Causes []resultCause `json:"causes"`
}

type resultCause struct {
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message"`
}

// resultText returns the result of a command as a protocol has it, nil for none: the oldest protocols have errors only.
func resultText(protocol string, err error, failed string) []byte {
	status := resultOf(err, failed)
	switch {
	case protocol == v5Binary:
		status = status.v5()
	case protocol == v4Binary || protocol == v4Base64:
	case err == nil:
		return nil
	default:
		return []byte(status.Message)
	}
	text, _ := json.Marshal(status) // text and numbers
	return text
}

// v5 returns the result as clients of v5 get it from upstream, where the kubelet makes it of what the runtime has sent in v4.
func (r result) v5() result {
	r.Metadata = &struct{}{}
	if r.Reason == nonZeroExitCode {
		r.Message = "command terminated with non-zero exit code: command terminated with exit code " + r.Details.Causes[0].Message
	}
	return r
}

func resultOf(err error, failed string) result {
	var exit utilexec.ExitError
	switch {
	case err == nil:
		return result{Status: "Success"}
	case errors.As(err, &exit) && exit.Exited():
		return result{
			Status: "Failure", Reason: nonZeroExitCode, Message: fmt.Sprintf("command terminated with non-zero exit code: %v", exit),
			Details: &resultDetails{[]resultCause{{Reason: exitCode, Message: fmt.Sprint(exit.ExitStatus())}}},
		}
	}
	cause := fmt.Sprintf("%s: %v", failed, err)
	return result{
		Status: "Failure", Reason: "InternalError", Message: "Internal error occurred: " + cause, Code: http.StatusInternalServerError,
		Details: &resultDetails{[]resultCause{{Message: cause}}}, // clients read it without a look whether it is there
	}
}

// servePortChannels forwards the ports of a request for the client of a WebSocket. Each port has two channels, for its bytes and for an error.
func (s *Server) servePortChannels(w http.ResponseWriter, r *http.Request, f *forwarder) {
	p := f.ports
	if ports := len(p.Named); ports > mostPorts {
		http.Error(w, fmt.Sprintf("%d ports, want at most %d over a WebSocket", ports, mostPorts), http.StatusBadRequest)
		return
	}
	var kinds []channels.Kind
	for range p.Named {
		kinds = append(kinds, channels.ReadWrite, channels.Write)
	}
	g := run.NewGroup(context.WithoutCancel(r.Context()), 0)
	defer g.Wait() // the end of the connection ends the copies from the client
	err := s.sockets.Serve(w, r, channels.Options{
		Protocols: []string{unnamed, v4Binary, v4Base64}, Kinds: kinds, Idle: lingering.Limit,
	}, func(c *channels.Conn) {
		for i, port := range p.Named { // the first message of each channel has its port, before all others
			number := binary.LittleEndian.AppendUint16(nil, uint16(port))
			_, _ = c.Channel(2 * i).Write(number)
			_, _ = c.Channel(2*i + 1).Write(number)
		}
		ports := run.NewGroup(r.Context(), 0)
		defer ports.Wait()
		for i, port := range p.Named {
			data, errs := c.Channel(2*i), c.Channel(2*i+1)
			ports.Go(func(ctx context.Context) {
				defer data.Close()
				if err := f.forward(ctx, g, port, data, false); err != nil {
					_, _ = fmt.Fprintf(errs, "error forwarding port %d to pod %s, uid : %v", port, p.Pod, err)
				}
			})
		}
	})
	if err != nil {
		s.log().Debug("a WebSocket was refused", "err", err)
	}
}
