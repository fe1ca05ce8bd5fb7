package controller

import (
	"log/slog"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/internal/quarantine"
	"github.com/sampan-io/sampan/internal/run"
)

// Config is the configuration that the packages of controllers have in common. Client is required.
type Config struct {
	Client  client.Interface
	As      func(account string) client.Interface // acts as a service account of kube-system; nil means that all act as Client
	Caches  *cache.Shared                         // caches to read from; nil means separate caches that are filled through Client
	Workers int                                   // number of objects that each controller reconciles at the same time; 0 means 4
	Log     *slog.Logger                          // nil means slog.Default

	Quarantine *quarantine.Quarantine // of objects that ended an earlier process; nil has none
}

// WithDefaults returns c with Caches and Log set, and a task that is ready when the caches are. The task must run
// together with the controllers that use them.
func (c Config) WithDefaults() (Config, run.Task) {
	if c.Log == nil {
		c.Log = slog.Default()
	}
	var caches run.Task
	c.Caches, caches = c.Caches.Or(c.Client, c.Log)
	return c, caches
}

// For returns c with the client of a service account of kube-system. Each controller writes as the account that
// upstream's controller has, and so under that account's roles. Caches stay shared.
func (c Config) For(account string) Config {
	if c.As != nil {
		c.Client = c.As(account)
	}
	return c
}

// KeyOfEither returns the key of an object from the two states that a cache reports for a change. One of them may be
// nil: before, if the object was created; after, if it was deleted.
func KeyOfEither[T interface {
	comparable
	metav1.Object
}](before, after T) Key {
	var none T
	if after == none {
		return KeyOf(before)
	}
	return KeyOf(after)
}
