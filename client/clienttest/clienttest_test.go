package clienttest_test

import (
	"testing"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/clienttest"
)

func TestTheBareServerConforms(t *testing.T) {
	clienttest.Conform(t, func(t *testing.T) client.Interface { return clienttest.New(t) })
}
