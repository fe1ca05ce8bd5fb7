package admission

import (
	"context"
	"strings"

	"github.com/sampan-io/sampan/internal/nodefeature"
)

// NodeDeclaredFeatureValidator refuses updates of a pod that need features which its node does not declare (KEP-5328).
type NodeDeclaredFeatureValidator struct{ reader Reader }

// NewNodeDeclaredFeatureValidator returns the plug-in.
func NewNodeDeclaredFeatureValidator(r Reader) NodeDeclaredFeatureValidator {
	return NodeDeclaredFeatureValidator{r}
}

// Name implements [Plugin].
func (NodeDeclaredFeatureValidator) Name() string { return "NodeDeclaredFeatureValidator" }

// Validate implements [Validator].
func (p NodeDeclaredFeatureValidator) Validate(ctx context.Context, a *Attributes) error {
	if a.Operation != Update || !a.is("pods", "") && !a.is("pods", "resize") {
		return nil
	}
	pod, old, ok := boundPods(a)
	if !ok {
		return nil
	}
	required := nodefeature.RequiredByUpdate(old, pod)
	if len(required) == 0 {
		return nil
	}
	node, err := nodeOf(ctx, p.reader, a, pod)
	if err != nil {
		return err
	}
	if missing := nodefeature.Missing(required, node.Status.DeclaredFeatures); len(missing) > 0 {
		return refuse(a, "pod update requires features %s which are not available on node %q", strings.Join(missing, ", "), node.Name)
	}
	return nil
}
