package config

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// These types are the format of the file. Pointers distinguish a missing field from a zero value.

type file struct {
	metav1.TypeMeta `json:",inline"`

	Parallelism               *int32          `json:"parallelism"`
	LeaderElection            *leaderElection `json:"leaderElection"`
	ClientConnection          *connection     `json:"clientConnection"`
	EnableProfiling           *bool           `json:"enableProfiling"`
	EnableContentionProfiling *bool           `json:"enableContentionProfiling"`
	PercentageOfNodesToScore  *int32          `json:"percentageOfNodesToScore"`
	PodInitialBackoffSeconds  *int64          `json:"podInitialBackoffSeconds"`
	PodMaxBackoffSeconds      *int64          `json:"podMaxBackoffSeconds"`
	Profiles                  []profile       `json:"profiles"`
	Extenders                 []extend        `json:"extenders"`
	DelayCacheUntilActive     bool            `json:"delayCacheUntilActive"`
}

type leaderElection struct {
	LeaderElect       *bool           `json:"leaderElect"`
	LeaseDuration     metav1.Duration `json:"leaseDuration"`
	RenewDeadline     metav1.Duration `json:"renewDeadline"`
	RetryPeriod       metav1.Duration `json:"retryPeriod"`
	ResourceLock      string          `json:"resourceLock"`
	ResourceName      string          `json:"resourceName"`
	ResourceNamespace string          `json:"resourceNamespace"`
}

type connection struct {
	Kubeconfig         string  `json:"kubeconfig"`
	AcceptContentTypes string  `json:"acceptContentTypes"`
	ContentType        string  `json:"contentType"`
	QPS                float32 `json:"qps"`
	Burst              int32   `json:"burst"`
}

type profile struct {
	SchedulerName            *string   `json:"schedulerName"`
	PercentageOfNodesToScore *int32    `json:"percentageOfNodesToScore"`
	Plugins                  *plugins  `json:"plugins"`
	PluginConfig             []oneArgs `json:"pluginConfig"`
}

type oneArgs struct {
	Name string          `json:"name"`
	Args json.RawMessage `json:"args"`
}

type plugins struct {
	PreEnqueue pluginSet `json:"preEnqueue"`
	QueueSort  pluginSet `json:"queueSort"`
	PreFilter  pluginSet `json:"preFilter"`
	Filter     pluginSet `json:"filter"`
	PostFilter pluginSet `json:"postFilter"`
	PreScore   pluginSet `json:"preScore"`
	Score      pluginSet `json:"score"`
	Reserve    pluginSet `json:"reserve"`
	Permit     pluginSet `json:"permit"`
	PreBind    pluginSet `json:"preBind"`
	Bind       pluginSet `json:"bind"`
	PostBind   pluginSet `json:"postBind"`
	MultiPoint pluginSet `json:"multiPoint"`
}

type pluginSet struct {
	Enabled  []choice `json:"enabled"`
	Disabled []choice `json:"disabled"`
}

type choice struct {
	Name   string `json:"name"`
	Weight *int32 `json:"weight"`
}

type extend struct {
	URLPrefix        string          `json:"urlPrefix"`
	FilterVerb       string          `json:"filterVerb"`
	PreemptVerb      string          `json:"preemptVerb"`
	PrioritizeVerb   string          `json:"prioritizeVerb"`
	Weight           int64           `json:"weight"`
	BindVerb         string          `json:"bindVerb"`
	EnableHTTPS      bool            `json:"enableHTTPS"`
	TLSConfig        *extendTLS      `json:"tlsConfig"`
	HTTPTimeout      metav1.Duration `json:"httpTimeout"`
	NodeCacheCapable bool            `json:"nodeCacheCapable"`
	ManagedResources []managed       `json:"managedResources"`
	Ignorable        bool            `json:"ignorable"`
}

type managed struct {
	Name               string `json:"name"`
	IgnoredByScheduler bool   `json:"ignoredByScheduler"`
}

type extendTLS struct {
	Insecure   bool   `json:"insecure"`
	ServerName string `json:"serverName"`
	CertFile   string `json:"certFile"`
	KeyFile    string `json:"keyFile"`
	CAFile     string `json:"caFile"`
	CertData   []byte `json:"certData"`
	KeyData    []byte `json:"keyData"`
	CAData     []byte `json:"caData"`
}
