package admissioncel

import (
	"errors"
	"regexp"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"k8s.io/apimachinery/pkg/api/resource"
	apicel "k8s.io/apiserver/pkg/cel"

	"github.com/sampan-io/sampan/internal/quantity"
)

// smallQuantity is the form of quantities that are read and compared in little time. "1e2147483647" takes minutes and
// gigabytes, which the cost of an expression does not show, and the author of any object that a policy reads could
// write that.
var smallQuantity = regexp.MustCompile(`^[+-]?[0-9.]{1,64}([eE][+-]?[0-9]{1,3}|[numkMGTPE]?|[KMGTPE]i)$`)

// longestQuantity is longer than any quantity that is small, in bytes.
const longestQuantity = 80

var errLargeQuantity = errors.New("a quantity must have at most 64 digits, and an exponent of at most three")

// boundedQuantities replaces the functions of the library that read quantities.
func boundedQuantities() []cel.EnvOption {
	text := []*cel.Type{cel.StringType}
	return []cel.EnvOption{
		cel.Function("quantity", cel.Overload("string_to_quantity", text, apicel.QuantityType, cel.UnaryBinding(func(arg ref.Val) ref.Val {
			q, err := parseQuantity(arg)
			if err != nil {
				return types.WrapErr(err)
			}
			return apicel.Quantity{Quantity: &q}
		}))),
		cel.Function("isQuantity", cel.Overload("is_quantity_string", text, cel.BoolType, cel.UnaryBinding(func(arg ref.Val) ref.Val {
			_, err := parseQuantity(arg)
			return types.Bool(err == nil)
		}))),
	}
}

func parseQuantity(arg ref.Val) (resource.Quantity, error) {
	text, _ := arg.Value().(string)
	if len(text) > longestQuantity {
		return resource.Quantity{}, errLargeQuantity
	}
	q, err := quantity.Parse(text)
	if err == nil && !smallQuantity.MatchString(text) {
		err = errLargeQuantity
	}
	return q, err
}
