package runtime

import (
	"context"
	"errors"
	"fmt"
	"path"
	"runtime/debug"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sampan-io/sampan/runtime/container"
	"github.com/sampan-io/sampan/runtime/image"
)

// intercept gives every error its code, and turns a panic of ours into an error of
// the one call.
func (s *Server) intercept(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (_ any, err error) {
	defer s.activity.Note()
	defer s.rescue(info.FullMethod, &err)
	res, err := handle(ctx, req)
	return res, coded(info.FullMethod, err)
}

func (s *Server) interceptStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) (err error) {
	defer s.rescue(info.FullMethod, &err)
	return coded(info.FullMethod, handle(srv, stream))
}

func (s *Server) rescue(method string, err *error) {
	if p := recover(); p != nil {
		s.opts.Log.Error("a call panicked: this is a bug", "method", method, "panic", p, "stack", string(debug.Stack()))
		*err = status.Errorf(codes.Internal, "%s met a bug in sampan-runtime: %v", method, p)
	}
}

func coded(method string, err error) error {
	if err == nil {
		return nil
	}
	if st, ok := status.FromError(err); ok {
		// The generated answer names a method and says nothing more.
		if st.Code() == codes.Unimplemented && st.Message() == fmt.Sprintf("method %s not implemented", path.Base(method)) {
			return status.Errorf(codes.Unimplemented, "sampan-runtime doesn't offer the CRI call %s", path.Base(method))
		}
		return err
	}
	code := codes.Unknown
	switch {
	case errors.Is(err, container.ErrNotFound), errors.Is(err, image.ErrNotFound):
		code = codes.NotFound
	case errors.Is(err, container.ErrState):
		code = codes.FailedPrecondition
	case errors.Is(err, container.ErrTimeout), errors.Is(err, context.DeadlineExceeded):
		code = codes.DeadlineExceeded
	case errors.Is(err, context.Canceled):
		code = codes.Canceled
	}
	return status.Error(code, err.Error())
}

// invalid is the answer to a request that can't be fulfilled as it is.
func invalid(format string, args ...any) error {
	return status.Errorf(codes.InvalidArgument, format, args...)
}
