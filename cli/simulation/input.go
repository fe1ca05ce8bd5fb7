package simulation

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/sampan-io/sampan/catalog"
	allkinds "github.com/sampan-io/sampan/catalog/kinds"
	"github.com/sampan-io/sampan/cli/resource"
	"github.com/sampan-io/sampan/cli/session"
	"github.com/sampan-io/sampan/simulation"
)

// most bounds the nodes of a simulation, which are all in memory and cost a decision
// each.
const most = 100_000

// kinds are the kinds that a simulation reads without a server.
type kinds struct{ *catalog.Catalog }

// newKinds leaves out the kinds that a simulation does not evaluate, so that the user gets a note about them.
func newKinds() (kinds, error) {
	c, err := catalog.New(slices.DeleteFunc(allkinds.All(), func(k *catalog.Kind) bool {
		return k.Answered() || k.Group == "scheduling.k8s.io" || k.Group == "storage.k8s.io"
	}))
	return kinds{c}, err
}

// mapper answers what a server that serves these kinds would.
func (k kinds) mapper() *resource.Mapper {
	var served []resource.Mapping
	for _, kind := range k.Kinds() {
		served = append(served, resource.Mapping{GroupVersionResource: kind.GVR(), Kind: kind.Kind, Namespaced: kind.Namespaced})
	}
	return resource.NewStaticMapper(served)
}

// read returns an object as a server would have it: with its type and its defaults,
// and nothing wrong with it.
func (k kinds) read(ctx context.Context, info resource.Info) (catalog.Object, error) {
	kind := k.Kind(info.Mapping.GVK())
	obj := kind.New()
	err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(info.Object.Object, obj, true)
	if err != nil {
		return nil, info.Fault(err, unknownFields(err)...)
	}
	if obj.GetName() == "" && obj.GetGenerateName() != "" {
		obj.SetName(obj.GetGenerateName() + "x")
	}
	// A stand-in, the same each time, and fit for a label as real ones are.
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%s/%s", kind.Resource, obj.GetNamespace(), obj.GetName()))
	obj.SetUID(types.UID(hex.EncodeToString(sum[:16])))
	if kind.Default != nil {
		kind.Default(obj)
	}
	if kind.Prepare != nil {
		given := obj.DeepCopyObject()
		kind.Prepare(obj, nil)
		if node, ok := obj.(*corev1.Node); ok {
			node.Status = given.(*corev1.Node).Status // it is what a node is about
		}
	}
	faults := catalog.ValidateMeta(kind, obj, nil)
	if kind.Validate != nil {
		faults = append(faults, kind.Validate(ctx, obj, nil)...)
	}
	if len(faults) > 0 {
		var fields, texts []string
		for _, f := range faults {
			fields, texts = append(fields, f.Field), append(texts, f.Error())
		}
		return nil, info.Fault(fmt.Errorf("%s is invalid: %s", info, strings.Join(slices.Compact(texts), ", ")), fields...)
	}
	return obj, nil
}

// unknownFields returns the fields that a strict decoder did not know.
func unknownFields(err error) (fields []string) {
	strict, ok := runtime.AsStrictDecodingError(err)
	if !ok {
		return nil
	}
	for _, e := range strict.Errors() {
		if _, rest, found := strings.Cut(e.Error(), `field "`); found {
			fields = append(fields, strings.TrimSuffix(rest, `"`))
		}
	}
	return fields
}

// nodesOf returns the nodes that --nodes names: a number of equal ones, a file of
// simulated ones, or a file of Node objects as a cluster prints them.
func (k kinds) nodesOf(ctx context.Context, s *session.Session, text string) ([]*corev1.Node, error) {
	if n, err := strconv.Atoi(text); err == nil {
		if n < 1 || n > most {
			return nil, fmt.Errorf("--nodes: must be 1 to %[2]d, or a file, got %[1]d", n, most)
		}
		return planned(simulation.Uniform("node", n)), nil
	}
	if data, err := os.ReadFile(text); err == nil {
		var head struct {
			Kind string `json:"kind"`
		}
		if yaml.Unmarshal(data, &head) == nil && head.Kind == simulation.Kind {
			plan, err := simulation.Parse(text, data, 0, most)
			if err != nil {
				return nil, err
			}
			return planned(plan), nil
		}
	}
	var nodes []*corev1.Node
	var errs []error
	r := s.Request(session.Input{}, nil)
	r.Files = []string{text}
	for info, err := range resource.Stream(ctx, s.Mapper, r) {
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if info.Mapping.Kind != "Node" {
			errs = append(errs, info.Fault(fmt.Errorf("kind: must be Node or %[2]s, got %[1]s", info.Mapping.Kind, simulation.Kind), "kind"))
			continue
		}
		obj, err := k.read(ctx, info)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		node := obj.(*corev1.Node) // as its mapping says
		if slices.ContainsFunc(nodes, func(n *corev1.Node) bool { return n.Name == node.Name }) {
			errs = append(errs, info.Fault(fmt.Errorf("duplicate node %q", node.Name), "metadata.name"))
			continue
		}
		nodes = append(nodes, node)
	}
	if len(nodes) == 0 && len(errs) == 0 {
		errs = append(errs, fmt.Errorf("%s contains no nodes", text))
	}
	return nodes, errors.Join(errs...)
}

func planned(p *simulation.Plan) []*corev1.Node {
	nodes := make([]*corev1.Node, p.Len())
	for i := range nodes {
		nodes[i] = p.Node(i)
	}
	return nodes
}
