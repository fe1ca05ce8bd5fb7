package flowcontrol

import (
	"strconv"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/catalog/declared"
)

const defaultPrecedence = 1000

// Defaults of a level that serves a limited number of requests at once.
const (
	defaultShares      = int32(30)
	defaultHandSize    = 8
	defaultQueues      = 64
	defaultQueueLength = 50
)

// Kinds returns the kinds of flowcontrol.apiserver.k8s.io.
func Kinds() []*catalog.Kind { return []*catalog.Kind{flowSchemas(), priorityLevels()} }

func flowSchemas() *catalog.Kind {
	spec := flowcontrolv1.FlowSchemaSpec{}.SwaggerDoc()
	return &catalog.Kind{
		GroupVersionKind: flowcontrolv1.SchemeGroupVersion.WithKind("FlowSchema"),
		Resource:         "flowschemas",
		Singular:         "flowschema",
		New:              func() catalog.Object { return &flowcontrolv1.FlowSchema{} },
		NewList:          func() runtime.Object { return &flowcontrolv1.FlowSchemaList{} },
		Default: catalog.Default(func(s *flowcontrolv1.FlowSchema) {
			if s.Spec.MatchingPrecedence == 0 {
				s.Spec.MatchingPrecedence = defaultPrecedence
			}
		}),
		Prepare: catalog.Prepare(func(s, old *flowcontrolv1.FlowSchema) {
			s.Status = flowcontrolv1.FlowSchemaStatus{}
			if old != nil {
				s.Status = old.Status
			}
		}),
		Validate:   catalog.Validate(validateSchema),
		Generation: true,
		Columns: []catalog.Column{
			catalog.Text("PriorityLevel", flowcontrolv1.PriorityLevelConfigurationReference{}.SwaggerDoc()["name"], func(s *flowcontrolv1.FlowSchema) string {
				return s.Spec.PriorityLevelConfiguration.Name
			}),
			catalog.Text("MatchingPrecedence", spec["matchingPrecedence"], func(s *flowcontrolv1.FlowSchema) string {
				return number(s.Spec.MatchingPrecedence)
			}),
			catalog.Text("DistinguisherMethod", spec["distinguisherMethod"], func(s *flowcontrolv1.FlowSchema) string {
				if s.Spec.DistinguisherMethod == nil {
					return catalog.None
				}
				return string(s.Spec.DistinguisherMethod.Type)
			}),
			catalog.Age(),
			catalog.Text("MissingPL", "references a broken or non-existent PriorityLevelConfiguration", func(s *flowcontrolv1.FlowSchema) string {
				for _, c := range s.Status.Conditions {
					if c.Type == flowcontrolv1.FlowSchemaConditionDangling {
						return string(c.Status)
					}
				}
				return "?"
			}),
		},
		Subresources: []catalog.Subresource{{
			Name:  "status",
			Verbs: []string{"get", "patch", "update"},
			Shape: catalog.Part{
				Prepare: catalog.Prepare(func(s, old *flowcontrolv1.FlowSchema) {
					managers := s.ManagedFields
					old.ObjectMeta.DeepCopyInto(&s.ObjectMeta)
					s.Spec, s.ManagedFields = old.Spec, managers
				}),
				Keeps:    []string{"metadata"},
				Validate: catalog.Validate(validateSchemaStatus),
			},
		}},
	}
}

func priorityLevels() *catalog.Kind {
	spec, queuing := flowcontrolv1.PriorityLevelConfigurationSpec{}.SwaggerDoc(), flowcontrolv1.QueuingConfiguration{}.SwaggerDoc()
	// queue shows a number of the level's queues.
	queue := func(name, key string, value func(q *flowcontrolv1.QueuingConfiguration) int32) catalog.Column {
		return catalog.Text(name, queuing[key], func(l *flowcontrolv1.PriorityLevelConfiguration) string {
			if l.Spec.Limited == nil || l.Spec.Limited.LimitResponse.Queuing == nil {
				return catalog.None
			}
			return number(value(l.Spec.Limited.LimitResponse.Queuing))
		})
	}
	return &catalog.Kind{
		GroupVersionKind: flowcontrolv1.SchemeGroupVersion.WithKind("PriorityLevelConfiguration"),
		Resource:         "prioritylevelconfigurations",
		Singular:         "prioritylevelconfiguration",
		New:              func() catalog.Object { return &flowcontrolv1.PriorityLevelConfiguration{} },
		NewList:          func() runtime.Object { return &flowcontrolv1.PriorityLevelConfigurationList{} },
		Default:          catalog.Default(defaultLevel),
		Prepare: catalog.Prepare(func(l, old *flowcontrolv1.PriorityLevelConfiguration) {
			l.Status = flowcontrolv1.PriorityLevelConfigurationStatus{}
			if old != nil {
				l.Status = old.Status
			}
		}),
		Validate:   declared.With(catalog.Validate(validateLevel), ""),
		Generation: true,
		Columns: []catalog.Column{
			catalog.Text("Type", spec["type"], func(l *flowcontrolv1.PriorityLevelConfiguration) string { return string(l.Spec.Type) }),
			catalog.Text("NominalConcurrencyShares", flowcontrolv1.LimitedPriorityLevelConfiguration{}.SwaggerDoc()["nominalConcurrencyShares"], func(l *flowcontrolv1.PriorityLevelConfiguration) string {
				if l.Spec.Limited == nil || l.Spec.Limited.NominalConcurrencyShares == nil {
					return catalog.None
				}
				return number(*l.Spec.Limited.NominalConcurrencyShares)
			}),
			queue("Queues", "queues", func(q *flowcontrolv1.QueuingConfiguration) int32 { return q.Queues }),
			queue("HandSize", "handSize", func(q *flowcontrolv1.QueuingConfiguration) int32 { return q.HandSize }),
			queue("QueueLengthLimit", "queueLengthLimit", func(q *flowcontrolv1.QueuingConfiguration) int32 { return q.QueueLengthLimit }),
			catalog.Age(),
		},
		Subresources: []catalog.Subresource{{
			Name:  "status",
			Verbs: []string{"get", "patch", "update"},
			Shape: catalog.Part{
				Prepare: catalog.Prepare(func(l, old *flowcontrolv1.PriorityLevelConfiguration) {
					managers := l.ManagedFields
					old.ObjectMeta.DeepCopyInto(&l.ObjectMeta)
					l.Spec, l.ManagedFields = old.Spec, managers
				}),
				Keeps:    []string{"metadata"},
				Validate: declared.With(catalog.Validate(validateLevelStatus), "status"),
			},
		}},
	}
}

func number(n int32) string { return strconv.Itoa(int(n)) }

func defaultLevel(l *flowcontrolv1.PriorityLevelConfiguration) {
	if e := l.Spec.Exempt; e != nil {
		orSet(&e.NominalConcurrencyShares, 0)
		orSet(&e.LendablePercent, 0)
	}
	if l.Spec.Limited == nil {
		return
	}
	orSet(&l.Spec.Limited.NominalConcurrencyShares, defaultShares)
	orSet(&l.Spec.Limited.LendablePercent, 0)
	if q := l.Spec.Limited.LimitResponse.Queuing; q != nil {
		orSetNumber(&q.HandSize, defaultHandSize)
		orSetNumber(&q.Queues, defaultQueues)
		orSetNumber(&q.QueueLengthLimit, defaultQueueLength)
	}
}

func orSet(field **int32, v int32) {
	if *field == nil {
		*field = &v
	}
}

func orSetNumber(field *int32, v int32) {
	if *field == 0 {
		*field = v
	}
}
