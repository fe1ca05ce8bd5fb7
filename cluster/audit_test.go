package cluster

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sampan-io/sampan/apiserver/audit"
	"github.com/sampan-io/sampan/cluster/local"
)

func TestAuditFlagsBecomeItsConfiguration(t *testing.T) {
	same := cmpopts.IgnoreUnexported(audit.Batch{})
	if diff := cmp.Diff(audit.DefaultConfig(), auditConfig(""), same); diff != "" {
		t.Errorf("without flags (-default +got):\n%s", diff)
	}
	var flags local.ServerFlags
	for _, f := range local.AllServerFlags() {
		value := map[local.FlagKind]string{local.InputFile: "/dev/null", local.OutputFile: "/x", local.Text: "x", local.Number: "7", local.Fraction: "7", local.Switch: "true", local.Period: "7s"}[f.Kind]
		flags.Set(f.Name, value)
	}
	batch := audit.Batch{Mode: "x", BufferSize: 7, MaxSize: 7, MaxWait: 7 * time.Second, ThrottleEnable: true, ThrottleQPS: 7, ThrottleBurst: 7}
	truncate := audit.Truncate{Enabled: true, MaxBatchSize: 7, MaxEventSize: 7}
	want := audit.Config{
		PolicyFile: "/dev/null",
		Log:        audit.Log{Path: "/x", MaxAge: 7, MaxBackups: 7, MaxSize: 7, Compress: true, Format: "x", Version: "x", Batch: batch, Truncate: truncate},
		Webhook:    audit.Webhook{ConfigFile: "/dev/null", InitialBackoff: 7 * time.Second, Version: "x", Batch: batch, Truncate: truncate},
	}
	if diff := cmp.Diff(want, auditConfig(flags), same); diff != "" {
		t.Errorf("with all flags (-want +got):\n%s", diff)
	}
}
