package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	avast "github.com/avast/retry-go/v5"
	cenkalti "github.com/cenkalti/backoff/v5"
	"github.com/onsi/gomega"
	sethvargo "github.com/sethvargo/go-retry"
	"github.com/stretchr/testify/assert"
	upstream "k8s.io/apimachinery/pkg/util/wait"

	"github.com/sampan-io/sampan/wait"
)

// A library is one way to ask a condition every so often, for at most so long. wait
// reports whether the condition held in time.
type library struct {
	name string
	wait func(every, limit time.Duration, holds func() bool) bool
}

var errNotYet = errors.New("not yet")

var libraries = []library{
	{"sampan wait", func(every, limit time.Duration, holds func() bool) bool {
		return wait.Until(context.Background(), wait.Pace{First: every, Limit: limit}, func(context.Context) (bool, error) { return holds(), nil }) == nil
	}},
	{"apimachinery PollUntilContextTimeout", func(every, limit time.Duration, holds func() bool) bool {
		return upstream.PollUntilContextTimeout(context.Background(), every, limit, true, func(context.Context) (bool, error) { return holds(), nil }) == nil
	}},
	{"apimachinery Poll", func(every, limit time.Duration, holds func() bool) bool {
		return upstream.Poll(every, limit, func() (bool, error) { return holds(), nil }) == nil
	}},
	{"cenkalti/backoff v5", func(every, limit time.Duration, holds func() bool) bool {
		_, err := cenkalti.Retry(context.Background(), func() (struct{}, error) { return struct{}{}, unless(holds()) },
			cenkalti.WithBackOff(cenkalti.NewConstantBackOff(every)), cenkalti.WithMaxElapsedTime(limit))
		return err == nil
	}},
	{"avast/retry-go v5", func(every, limit time.Duration, holds func() bool) bool {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		return avast.New(avast.Context(ctx), avast.UntilSucceeded(), avast.Delay(every), avast.DelayType(avast.FixedDelay)).
			Do(func() error { return unless(holds()) }) == nil
	}},
	{"sethvargo/go-retry", func(every, limit time.Duration, holds func() bool) bool {
		return sethvargo.Do(context.Background(), sethvargo.WithMaxDuration(limit, sethvargo.NewConstant(every)), func(context.Context) error {
			return sethvargo.RetryableError(unless(holds()))
		}) == nil
	}},
	{"gomega Eventually", func(every, limit time.Duration, holds func() bool) bool {
		failed := false
		gomega.NewGomega(func(string, ...int) { failed = true }).Eventually(holds, limit, every).Should(gomega.BeTrue())
		return !failed
	}},
	{"testify Eventually", func(every, limit time.Duration, holds func() bool) bool {
		return assert.Eventually(quiet{}, holds, limit, every)
	}},
}

func unless(holds bool) error {
	if holds {
		return nil
	}
	return errNotYet
}

// quiet is a test that drops what testify says.
type quiet struct{}

func (quiet) Errorf(format string, args ...any) { _ = fmt.Sprintf(format, args...) }
