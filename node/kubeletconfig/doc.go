// Package kubeletconfig reads the configuration file of the node agent: a KubeletConfiguration of
// kubelet.config.k8s.io/v1beta1, the one that upstream's kubelet reads with --config.
//
// A [Config] has every field of that type, with upstream's defaults. Reading is strict: unknown and duplicate fields,
// values of the wrong type and values out of range are errors that name the file and the field, all at once. A field
// that this agent does not act on is a warning, unless its value is the default: [Config.Warnings]. [Effective] lists
// the fields that have an effect.
//
// A few defaults differ from upstream's, because Sampan runs on machines where a kubelet with its defaults refuses to
// start: failSwapOn and failCgroupV1 are false.
package kubeletconfig
