package manager

import (
	"iter"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/controller"
	"github.com/sampan-io/sampan/controller/autoscale"
	"github.com/sampan-io/sampan/controller/balancer"
	"github.com/sampan-io/sampan/controller/certificates"
	"github.com/sampan-io/sampan/controller/garbage"
	"github.com/sampan-io/sampan/controller/namespaces"
	"github.com/sampan-io/sampan/controller/nodeipam"
	"github.com/sampan-io/sampan/controller/tokens"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/internal/sorting"
)

// Options configures the controllers. The fields of Config except Workers, and Raw and Roots are required.
type Options struct {
	controller.Config

	Selection Selection

	// Resources are the resources that the server itself serves and stores, without subresources and custom resources.
	Resources []client.Resource[client.Object]

	// Served returns the other resources, which come and go: first the custom resources, then those of other servers. It may be
	// empty. Metadata fills their caches. Nil means Client.
	Served   []cache.Served
	Metadata client.Interface

	// Others deletes the objects in a namespace that other servers have. Nil means that there are none.
	Others namespaces.Others

	Raw   autoscale.Raw // acts as the service account horizontal-pod-autoscaler
	Roots tokens.Roots  // authorities by which pods trust the API server; controllers that need one do not run if there is none

	// Controllers that need these do not run without them.
	Signer    tokens.Signer          // of tokens in Secrets
	Authority certificates.Authority // issues the certificates for Kubernetes' own signers
	Pool      *balancer.Pool         // addresses of load balancers

	PodNetworks *nodeipam.Pool        // networks of which Nodes get parts
	Servers     *certificates.Servers // that are no nodes; then serving certificates of nodes are approved
}

// Controllers are controllers that have not started.
type Controllers struct {
	Stage run.Stage // to be run together
	Names []string  // of the controllers in it, sorted
	Left  []Left    // selected controllers that are not in it, sorted
}

// A Left is a controller that cannot run.
type Left struct{ Name, Why string }

// A part is a controller under the name and the short name that upstream has for it, and the loops that are its.
type part struct {
	name, alias string
	loops       []string

	onRequest bool                          // * does not select it
	needs     []schema.GroupVersionResource // it does not run on a server that lacks one
	lacks     func(Options) string          // returns why it cannot run, or ""; nil means that it always can
}

// A group is the controllers that one package makes together.
type group struct {
	parts  []part
	custom bool // they follow custom resources
	tasks  func(o Options, custom *cache.Dynamic) []run.Task
}

// all returns all controllers.
func all() iter.Seq[*part] {
	return func(yield func(*part) bool) {
		for _, g := range groups() {
			for i := range g.parts {
				if !yield(&g.parts[i]) {
					return
				}
			}
		}
	}
}

// New returns the controllers that are selected and can run.
func New(o Options) Controllers {
	var c Controllers
	var custom *cache.Dynamic
	if len(o.Served) > 0 {
		reads := o.Metadata
		if reads == nil {
			reads = o.Client
		}
		custom = cache.NewDynamic(reads, o.Served, garbage.Indexes(), o.Log)
	}
	follows := false
	for _, g := range groups() {
		var off []string
		made := false
		for i := range g.parts {
			p := &g.parts[i]
			runs := o.Selection.selects(p)
			if why := o.missing(p); runs && why != "" {
				c.Left = append(c.Left, Left{p.name, why})
				runs = false
			}
			if !runs {
				off = append(off, p.loops...)
				continue
			}
			c.Names, made = append(c.Names, p.name), true
		}
		if !made {
			continue // nothing follows what only these controllers need
		}
		follows = follows || g.custom
		// The event recorders of a loop that is left out stay: they are idle.
		c.Stage = append(c.Stage, slices.DeleteFunc(g.tasks(o, custom), func(t run.Task) bool { return slices.Contains(off, t.Name) })...)
	}
	if follows && custom != nil {
		c.Stage = append(c.Stage, run.Task{Name: "objects of custom resources", Run: custom.Run})
	}
	slices.Sort(c.Names)
	sorting.Slice(c.Left, func(a, b Left) int { return strings.Compare(a.Name, b.Name) })
	return c
}

// missing returns why a controller cannot run, or "".
func (o Options) missing(p *part) string {
	for _, gvr := range p.needs {
		if !slices.ContainsFunc(o.Resources, func(r client.Resource[client.Object]) bool { return r.GroupVersionResource == gvr }) {
			return "the server does not serve " + gvr.GroupResource().String() + " in version " + gvr.Version
		}
	}
	if p.lacks != nil {
		return p.lacks(o)
	}
	return ""
}
