package builtin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/scheduler/plugin"
)

// DynamicResources allocates devices to the ResourceClaims of pods (KEP-4381), and keeps pods off nodes where their claims
// cannot be used. Upstream's published allocator finds the devices, given the devices in use.
//
// It holds its allocation for a pod from Reserve on ([allocations]). PreBind writes allocation and reservation, and waits
// for the binding conditions of the devices. It must be used as a pointer; the zero value is ready. Decision 0044 has the
// reasons.
type DynamicResources struct {
	// FilterTimeout is how long finding devices on one node may take; 0 means without limit, nil means a second.
	FilterTimeout *time.Duration

	// BindingTimeout is how long devices may take to meet their binding conditions; nil means ten minutes.
	BindingTimeout *time.Duration

	inFlight  allocations
	selectors selectors
	slow      slowNamespaces
}

const (
	// defaultFilterTimeout is a tenth of upstream's, where other goroutines go on with other nodes meanwhile.
	defaultFilterTimeout = time.Second
	// defaultBindingTimeout is upstream's.
	defaultBindingTimeout = 600 * time.Second
)

// Name implements [plugin.Plugin].
func (*DynamicResources) Name() string { return "DynamicResources" }

// Needs implements [plugin.Needer].
func (*DynamicResources) Needs() []schema.GroupVersionResource {
	return []schema.GroupVersionResource{
		client.ResourceClaims.GroupVersionResource, client.ResourceSlices.GroupVersionResource, client.DeviceClasses.GroupVersionResource,
		client.DeviceTaintRules.GroupVersionResource,
	}
}

// Optional implements [plugin.OptionalNeeder]: servers before v1.37 do not serve all of them.
func (d *DynamicResources) Optional() []schema.GroupVersionResource { return d.Needs() }

// Configure implements [plugin.Configurable].
func (*DynamicResources) Configure(args json.RawMessage) (plugin.Plugin, error) {
	var in struct {
		FilterTimeout  *metav1.Duration `json:"filterTimeout,omitempty"`
		BindingTimeout *metav1.Duration `json:"bindingTimeout,omitempty"`
	}
	if err := plugin.DecodeArgs(args, &in); err != nil {
		return nil, err
	}
	var errs field.ErrorList
	out := &DynamicResources{}
	if t := in.FilterTimeout; t != nil {
		if out.FilterTimeout = &t.Duration; t.Duration < 0 {
			errs = append(errs, field.Invalid(field.NewPath("filterTimeout"), t.Duration.String(), "must be zero or positive"))
		}
	}
	if t := in.BindingTimeout; t != nil {
		if out.BindingTimeout = &t.Duration; t.Duration < time.Second {
			errs = append(errs, field.Invalid(field.NewPath("bindingTimeout"), t.Duration.String(), "must be at least 1 second"))
		}
	}
	if err := errs.ToAggregate(); err != nil {
		return nil, err
	}
	return out, nil
}

func (d *DynamicResources) bindingTimeout() time.Duration {
	if d.BindingTimeout != nil {
		return *d.BindingTimeout
	}
	return defaultBindingTimeout
}

// Sign implements [plugin.Signer]: pods are equal if they use the same claims.
func (*DynamicResources) Sign(pod *plugin.Pod) string {
	if len(pod.Spec.ResourceClaims) == 0 && pod.Status.ExtendedResourceClaimStatus == nil {
		return ""
	}
	var names []string
	if pod.Status.ExtendedResourceClaimStatus != nil {
		names = append(names, "extended of "+string(pod.UID))
	}
	for i := range pod.Spec.ResourceClaims {
		name, owned, err := resourceclaim.Name(pod.Pod, &pod.Spec.ResourceClaims[i])
		if err != nil || owned {
			names = append(names, "of "+string(pod.UID)) // the claim is, or will be, the pod's own
		}
		if name != nil {
			names = append(names, *name)
		}
	}
	return strings.Join(names, "\x00")
}

// PreEnqueue implements [plugin.PreEnqueue]: a pod waits until its claims are made from their templates.
func (*DynamicResources) PreEnqueue(pod *plugin.Pod) plugin.Verdict {
	for i := range pod.Spec.ResourceClaims {
		if _, _, err := resourceclaim.Name(pod.Pod, &pod.Spec.ResourceClaims[i]); err != nil {
			return plugin.Never(err.Error())
		}
	}
	return plugin.Verdict{}
}

// claimsOf returns the claims of a pod.
func claimsOf(pod *plugin.Pod, s *plugin.Snapshot) ([]*resourcev1.ResourceClaim, error) {
	claims := make([]*resourcev1.ResourceClaim, 0, len(pod.Spec.ResourceClaims))
	seen := make(map[*resourcev1.ResourceClaim]bool, len(pod.Spec.ResourceClaims))
	for i := range pod.Spec.ResourceClaims {
		name, owned, err := resourceclaim.Name(pod.Pod, &pod.Spec.ResourceClaims[i])
		if err != nil {
			return nil, err
		}
		if name == nil {
			continue // none is needed
		}
		c, ok := plugin.Find(s, client.ResourceClaims, pod.Namespace, *name)
		switch {
		case !ok:
			return nil, apierrors.NewNotFound(client.ResourceClaims.GroupResource(), *name)
		case c.DeletionTimestamp != nil:
			return nil, fmt.Errorf("resourceclaim %q is being deleted", c.Name)
		case owned:
			if err := resourceclaim.IsForPod(pod.Pod, c, false); err != nil {
				return nil, err
			}
		}
		if !seen[c] {
			seen[c], claims = true, append(claims, c)
		}
	}
	return claims, nil
}

// PreFilter implements [plugin.PreFilter].
func (d *DynamicResources) PreFilter(ctx context.Context, pod *plugin.Pod, s *plugin.Snapshot) (plugin.Check, plugin.Verdict) {
	if !mayNeedDevices(pod) {
		return nil, plugin.Skip
	}
	c, v := d.check(ctx, pod, s)
	if !v.OK() {
		return nil, v
	}
	return c, v
}

// mayNeedDevices reports whether a pod has claims, or asks for resources that a class could provide.
func mayNeedDevices(pod *plugin.Pod) bool {
	return len(pod.Spec.ResourceClaims)+len(pod.Requests.Other) > 0
}

// check works out which claims of a pod lack an allocation.
func (d *DynamicResources) check(ctx context.Context, pod *plugin.Pod, s *plugin.Snapshot) (*deviceCheck, plugin.Verdict) {
	d.inFlight.settle(s)
	claims, err := claimsOf(pod, s)
	if err != nil {
		return nil, plugin.Never(err.Error())
	}
	extended := provided(pod, s)
	if len(claims)+len(extended) == 0 {
		return nil, plugin.Skip
	}
	c := &deviceCheck{d: d, ctx: ctx, pod: pod, now: time.Now(), extended: extended}
	if len(extended) > 0 {
		c.stale = extendedClaim(pod, s)
	}
	for _, claim := range claims {
		if claim.Status.Allocation != nil {
			c.allocated = append(c.allocated, claim)
			continue
		}
		if d.inFlight.has(claim) {
			return nil, plugin.Never(fmt.Sprintf("resource claim %s/%s is in the process of being allocated", claim.Namespace, claim.Name))
		}
		if v := validClasses(claim, s); !v.OK() {
			return nil, v
		}
		c.wanted = append(c.wanted, claim)
	}
	if len(c.wanted)+len(c.extended) == 0 || c.stale != nil {
		return c, plugin.Verdict{}
	}
	if until, slow := d.slow.until(pod.Namespace, c.now); slow {
		return nil, plugin.Fail(fmt.Errorf("finding devices for pods of the namespace took too long; the next attempt is at %s", until.UTC().Format(time.RFC3339)))
	}
	c.plans = map[string]*devicePlan{}
	c.allocator, err = structured.NewAllocator(ctx, features(), d.inFlight.state(s), classes{s}, taintedSlices(s), d.selectors.get())
	if err != nil {
		return nil, plugin.Fail(err)
	}
	return c, plugin.Verdict{}
}

// features are those whose gates are open by default in v1.37.
func features() structured.Features {
	return structured.Features{
		AdminAccess: true, PrioritizedList: true, PartitionableDevices: true, DeviceTaints: true, DeviceBindingAndStatus: true,
		ConsumableCapacity: true, FractionalCapacityRange: true,
	}
}

// validClasses refuses a claim that names a class that does not exist.
func validClasses(c *resourcev1.ResourceClaim, s *plugin.Snapshot) plugin.Verdict {
	find := func(class, request string) plugin.Verdict {
		if class == "" {
			return plugin.Fail(fmt.Errorf("request %s: unsupported request type", request))
		}
		if _, ok := plugin.Find(s, client.DeviceClasses, "", class); !ok {
			return plugin.Never(fmt.Sprintf("request %s: device class %s does not exist", request, class))
		}
		return plugin.Verdict{}
	}
	for i := range c.Spec.Devices.Requests {
		r := &c.Spec.Devices.Requests[i]
		switch {
		case r.Exactly != nil:
			if v := find(r.Exactly.DeviceClassName, r.Name); !v.OK() {
				return v
			}
		case len(r.FirstAvailable) > 0:
			for j := range r.FirstAvailable {
				if v := find(r.FirstAvailable[j].DeviceClassName, r.Name+"/"+r.FirstAvailable[j].Name); !v.OK() {
					return v
				}
			}
		default:
			return plugin.Never(fmt.Sprintf("resource claim %s/%s, request %s: unknown request type", c.Namespace, c.Name, r.Name))
		}
	}
	return plugin.Verdict{}
}

// classes implements the lister of the allocator.
type classes struct{ s *plugin.Snapshot }

func (c classes) List() ([]*resourcev1.DeviceClass, error) {
	return plugin.All(c.s, client.DeviceClasses, ""), nil
}

func (c classes) Get(name string) (*resourcev1.DeviceClass, error) {
	if class, ok := plugin.Find(c.s, client.DeviceClasses, "", name); ok {
		return class, nil
	}
	return nil, apierrors.NewNotFound(client.DeviceClasses.GroupResource(), name)
}

// deviceCheck is the requests of the claims of a pod.
type deviceCheck struct {
	d         *DynamicResources
	ctx       context.Context //nolint:containedctx // of the decision, which the check does not outlive
	pod       *plugin.Pod
	now       time.Time
	allocated []*resourcev1.ResourceClaim
	wanted    []*resourcev1.ResourceClaim // in the order of the results in plans
	allocator structured.Allocator        // nil if none is wanted
	plans     map[string]*devicePlan      // by node

	extended map[corev1.ResourceName]*resourcev1.DeviceClass // extended resources that classes provide
	stale    *resourcev1.ResourceClaim                       // of an earlier attempt, for the extended resources

	chosen *devicePlan // of the node that was chosen, from Reserve on
}

// A devicePlan is the allocations on a node: of the wanted claims and, if there is one, of the claim for extended resources.
type devicePlan struct {
	results  []resourcev1.AllocationResult
	extended *resourcev1.ResourceClaim
	mappings []corev1.ContainerExtendedResourceRequest
}

// Reasons for refusing nodes, in upstream's words.
const (
	claimElsewhere = "resourceclaim not available on the node"
	noDevices      = "cannot allocate all claims"
	staleClaim     = "cannot schedule extended resource claim"
)

// Filter implements [plugin.Check].
func (c *deviceCheck) Filter(node *plugin.Node) plugin.Verdict {
	if c.stale != nil {
		return plugin.Never(staleClaim)
	}
	var plan *devicePlan
	if c.allocator != nil {
		var v plugin.Verdict
		if plan, v = c.plan(node); !v.OK() {
			return v
		}
	}
	for _, claim := range c.allocated {
		if !c.d.usable(claim, node, c.now) {
			return plugin.Never(claimElsewhere)
		}
	}
	if c.allocator != nil {
		c.plans[node.Name] = plan
	}
	return plugin.Verdict{}
}

// usable reports whether an allocated claim can be used on a node: it can be reached there, and its devices have not failed.
func (d *DynamicResources) usable(c *resourcev1.ResourceClaim, node *plugin.Node, now time.Time) bool {
	if s := c.Status.Allocation.NodeSelector; s != nil && !anyHolds(s.NodeSelectorTerms, node.Node) {
		return false
	}
	ready, err := boundDevices(c)
	return err == nil && (ready || !expired(c, d.bindingTimeout(), now))
}

// plan finds devices for all claims of the pod on a node.
func (c *deviceCheck) plan(node *plugin.Node) (*devicePlan, plugin.Verdict) {
	plan, wanted := &devicePlan{}, c.wanted
	if len(c.extended) > 0 {
		if n := tooManyRequests(c.pod, c.extended, node); n > 0 {
			return nil, plugin.Never(fmt.Sprintf("%d containers ask for extended resources that are devices, and a claim has at most %d requests", n, resourcev1.DeviceRequestsMaxSize))
		}
		if plan.extended, plan.mappings = forNode(c.pod, c.extended, node); plan.extended != nil {
			wanted = append(slices.Clone(wanted), plan.extended)
		}
	}
	if len(wanted) == 0 {
		return plan, plugin.Verdict{} // the node has the resources itself
	}
	ctx, limit := c.ctx, defaultFilterTimeout
	if c.d.FilterTimeout != nil {
		limit = *c.d.FilterTimeout
	}
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	var err error
	plan.results, err = c.allocator.Allocate(ctx, node.Node, wanted)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		c.d.slow.add(c.pod.Namespace, limit)
		return nil, plugin.Fail(fmt.Errorf("node %s: timed out trying to allocate devices", node.Name))
	case errors.Is(err, structured.ErrFailedAllocationOnNode):
		return nil, plugin.Never(err.Error())
	case err != nil:
		return nil, plugin.Fail(err)
	case len(plan.results) != len(wanted):
		return nil, plugin.Never(noDevices)
	}
	return plan, plugin.Verdict{}
}

// PreScore implements [plugin.PreScore]: nodes are ranked by the alternatives that requests get there.
func (d *DynamicResources) PreScore(ctx context.Context, pod *plugin.Pod, s *plugin.Snapshot, nodes []*plugin.Node) (plugin.Scorer, plugin.Verdict) {
	if len(pod.Spec.ResourceClaims) == 0 {
		return nil, plugin.Skip
	}
	c, v := d.check(ctx, pod, s)
	if !v.OK() || c.stale != nil || !c.ranked() {
		return nil, plugin.Skip
	}
	for _, n := range nodes {
		if plan, v := c.plan(n); v.OK() {
			c.plans[n.Name] = plan
		}
	}
	return deviceScorer{c}, plugin.Verdict{}
}

// ranked reports whether some request has alternatives.
func (c *deviceCheck) ranked() bool {
	for _, claim := range c.wanted {
		for i := range claim.Spec.Devices.Requests {
			if len(claim.Spec.Devices.Requests[i].FirstAvailable) > 0 {
				return true
			}
		}
	}
	return false
}

type deviceScorer struct{ c *deviceCheck }

// Score implements [plugin.Scorer]: the earlier an alternative stands in its list, the better.
func (s deviceScorer) Score(node *plugin.Node) int64 {
	plan := s.c.plans[node.Name]
	var sum int64
	for i, claim := range s.c.wanted {
		if plan == nil || i >= len(plan.results) {
			return 0
		}
		got := map[string]bool{}
		for _, r := range plan.results[i].Devices.Results {
			got[r.Request] = true
		}
		for _, r := range claim.Spec.Devices.Requests {
			for j, alternative := range r.FirstAvailable {
				if got[r.Name+"/"+alternative.Name] {
					sum += int64(resourcev1.FirstAvailableDeviceRequestMaxSize - j)
				}
			}
		}
	}
	return sum
}

// Normalize implements [plugin.Normalizer].
func (deviceScorer) Normalize(_ []*plugin.Node, scores []int64) { plugin.Normalize(scores, false) }

// PostFilter implements [plugin.PostFilter]: it deallocates a claim that some node cannot use, if only this pod could use it.
func (d *DynamicResources) PostFilter(_ context.Context, f plugin.Failure) (plugin.Nomination, plugin.Verdict) {
	pod, s := f.Pod(), f.Snapshot()
	if !mayNeedDevices(pod) {
		return plugin.Nomination{}, plugin.Skip
	}
	if len(provided(pod, s)) > 0 {
		if c := extendedClaim(pod, s); c != nil {
			return plugin.Nomination{Write: discardClaim(c)}, plugin.Refuse("deletion of ResourceClaim completed")
		}
	}
	claims, err := claimsOf(pod, s)
	if err != nil {
		return plugin.Nomination{}, plugin.Skip
	}
	claims = slices.DeleteFunc(claims, func(c *resourcev1.ResourceClaim) bool {
		by := c.Status.ReservedFor
		return c.Status.Allocation == nil || len(by) > 1 || len(by) == 1 && by[0].UID != pod.UID
	})
	if len(claims) == 0 {
		return plugin.Nomination{}, plugin.Skip
	}
	now := time.Now()
	for _, n := range s.Nodes() {
		if v, by := f.Verdict(n); by != d.Name() || v.Reason != claimElsewhere {
			continue
		}
		for _, c := range claims {
			if !d.usable(c, n, now) {
				return plugin.Nomination{Write: deallocate(c)}, plugin.Refuse("deallocation of ResourceClaim completed")
			}
		}
	}
	return plugin.Nomination{}, plugin.Skip
}

func deallocate(c *resourcev1.ResourceClaim) func(context.Context, client.Interface) error {
	return func(ctx context.Context, api client.Interface) error {
		c := c.DeepCopy()
		c.Status = resourcev1.ResourceClaimStatus{}
		_, err := client.ResourceClaims.Update(ctx, api, c, "status")
		return err
	}
}

// Hints implements [plugin.Hinter].
func (*DynamicResources) Hints() []plugin.Hint {
	return []plugin.Hint{
		{Resource: client.Nodes.GroupVersionResource, Action: plugin.Added | plugin.NodeLabels | plugin.NodeAllocatable},
		{Resource: client.ResourceClaims.GroupVersionResource, Action: plugin.Added | plugin.Updated | plugin.Deleted, Helps: claimHelps},
		{Resource: client.DeviceClasses.GroupVersionResource, Action: plugin.Added | plugin.Updated},
		{Resource: client.ResourceSlices.GroupVersionResource, Action: plugin.Added | plugin.Updated},
		{Resource: client.DeviceTaintRules.GroupVersionResource, Action: plugin.Updated | plugin.Deleted},
		// The devices of a pod that was not bound are free.
		{Resource: client.Pods.GroupVersionResource, Action: plugin.Deleted, Helps: func(_ *plugin.Pod, c plugin.Change) bool {
			return mayNeedDevices(c.OldPod)
		}},
	}
}

// claimHelps reports whether a change of a claim can help a pod: devices became free, or the claim is the pod's.
func claimHelps(pod *plugin.Pod, change plugin.Change) bool {
	before, _ := change.OldObject.(*resourcev1.ResourceClaim)
	after, _ := change.Object.(*resourcev1.ResourceClaim)
	if before != nil && before.Status.Allocation != nil &&
		(after == nil || after.UID != before.UID || !equality.Semantic.DeepEqual(before.Status.Allocation, after.Status.Allocation)) {
		return true
	}
	if after == nil && before != nil && metav1.IsControlledBy(before, pod.Pod) {
		return true // the claim of an earlier attempt
	}
	if after == nil || after.Namespace != pod.Namespace {
		return false
	}
	if before != nil && before.UID == after.UID && sameStatus(before, after) {
		return false
	}
	for name := range resourceclaim.PodClaims(pod.Pod) {
		if name == after.Name {
			return true
		}
	}
	return false
}
