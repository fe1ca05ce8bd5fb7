package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// healthLimit bounds how long a question about the server's health may take.
const healthLimit = 5 * time.Second

// RefusedWrites returns why the server refuses writes for lack of space at present, with advice: the quota of its memory
// is used up, or its disk is full. Controllers then cannot create pods, and their events about that are refused, too, so
// the objects themselves do not show the cause.
//
// It returns "" if the server takes writes, and if that is not known: the user may not read /readyz/*, the server is not of
// this program, or it does not answer within a few seconds.
func (c *REST) RefusedWrites(ctx context.Context) string {
	for _, check := range []string{"store-quota", "etcd"} {
		resp, err := c.Do(ctx, RawRequest{Path: "/readyz/" + check, Limit: healthLimit})
		if err == nil {
			_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxStatus))
			_ = resp.Body.Close()
			continue
		}
		failed, is := errors.AsType[*apierrors.StatusError](err)
		if is && failed.ErrStatus.Code == http.StatusInternalServerError && failed.ErrStatus.Details != nil {
			for _, cause := range failed.ErrStatus.Details.Causes {
				if why, is := strings.CutPrefix(strings.TrimSpace(cause.Message), "internal server error: "); is {
					return why
				}
			}
		}
	}
	return ""
}
