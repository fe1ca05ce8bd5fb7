package cluster

import (
	"strconv"
	"time"

	"github.com/sampan-io/sampan/apiserver/audit"
	"github.com/sampan-io/sampan/cluster/local"
	"github.com/sampan-io/sampan/internal/run"
)

// openAudit reads the policy of audit records and their sinks. Without a policy nothing is.
func (c *cluster) openAudit() (err error) {
	c.audit, err = audit.New(auditConfig(c.Settings.Server), c.Log)
	return err
}

// auditTasks returns the part that records queued events. It stops after the API server.
func (c *cluster) auditTasks() run.Stage {
	if c.audit == nil {
		return nil
	}
	return run.Stage{{Name: "audit", Run: c.audit.Run, Ready: c.audit.Ready()}}
}

// auditConfig converts the flags, whose values were checked.
func auditConfig(flags local.ServerFlags) audit.Config {
	text := flags.Value
	number := func(name string) int {
		n, _ := strconv.Atoi(text(name))
		return n
	}
	period := func(name string) time.Duration {
		d, _ := time.ParseDuration(text(name))
		return d
	}
	batch := func(sink string) audit.Batch {
		qps, _ := strconv.ParseFloat(text(sink+"-batch-throttle-qps"), 32)
		return audit.Batch{
			Mode: audit.Mode(text(sink + "-mode")), BufferSize: number(sink + "-batch-buffer-size"), MaxSize: number(sink + "-batch-max-size"),
			MaxWait: period(sink + "-batch-max-wait"), ThrottleEnable: text(sink+"-batch-throttle-enable") == "true",
			ThrottleQPS: qps, ThrottleBurst: number(sink + "-batch-throttle-burst"),
		}
	}
	truncate := func(sink string) audit.Truncate {
		return audit.Truncate{
			Enabled:      text(sink+"-truncate-enabled") == "true",
			MaxBatchSize: int64(number(sink + "-truncate-max-batch-size")), MaxEventSize: int64(number(sink + "-truncate-max-event-size")),
		}
	}
	return audit.Config{
		PolicyFile: text("audit-policy-file"),
		Log: audit.Log{
			Path: text("audit-log-path"), MaxAge: number("audit-log-maxage"), MaxBackups: number("audit-log-maxbackup"), MaxSize: number("audit-log-maxsize"),
			Compress: text("audit-log-compress") == "true", Format: text("audit-log-format"), Version: text("audit-log-version"),
			Batch: batch("audit-log"), Truncate: truncate("audit-log"),
		},
		Webhook: audit.Webhook{
			ConfigFile: text("audit-webhook-config-file"), InitialBackoff: period("audit-webhook-initial-backoff"), Version: text("audit-webhook-version"),
			Batch: batch("audit-webhook"), Truncate: truncate("audit-webhook"),
		},
	}
}
