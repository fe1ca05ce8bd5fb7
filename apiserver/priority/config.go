package priority

import (
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"slices"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/catalog/flowcontrol"
)

// A Config is the stored objects. They are shared and not changed.
type Config struct {
	Schemas []*flowcontrolv1.FlowSchema
	Levels  []*flowcontrolv1.PriorityLevelConfiguration
}

// A snapshot is a configuration in use. It is not changed.
type snapshot struct {
	seed    maphash.Seed
	schemas []*schema // by precedence
	rest    *schema   // of requests that no schema matches
	levels  []*level  // by name
	shares  int       // of all levels
	seats   int       // the sum of the nominal seats
}

// A schema is a FlowSchema that refers to a level which exists.
type schema struct {
	name          string
	header        []string // its UID
	precedence    int32
	rules         []flowcontrolv1.PolicyRulesWithSubjects
	distinguisher flowcontrolv1.FlowDistinguisherMethodType
	level         *level
	seed          uint64
	stats         *stats
}

// A plan is the configuration of a level.
type plan struct {
	uid       string
	exempt    bool
	shares    int
	lendable  int // percent of the nominal seats
	borrowing int // percent of the nominal seats; -1 means without a limit
	queues    int // 0 means that requests are refused instead
	hand      int
	length    int
}

// planOf returns the plan of a level. A level that is broken, which validation does not let pass, is an error.
func planOf(l *flowcontrolv1.PriorityLevelConfiguration) (plan, error) {
	number := func(p *int32, otherwise int) int {
		if p == nil {
			return otherwise
		}
		return int(*p)
	}
	p := plan{uid: string(l.UID)}
	switch exempt, limited := l.Spec.Exempt, l.Spec.Limited; {
	case (l.Spec.Type == flowcontrolv1.PriorityLevelEnablementExempt) != (l.Name == flowcontrolv1.PriorityLevelConfigurationNameExempt):
		return p, fmt.Errorf("only the level %q may have the type Exempt, and must", flowcontrolv1.PriorityLevelConfigurationNameExempt)
	case l.Spec.Type == flowcontrolv1.PriorityLevelEnablementExempt:
		p.exempt = true
		if exempt != nil {
			p.shares, p.lendable = number(exempt.NominalConcurrencyShares, 0), number(exempt.LendablePercent, 0)
		}
	case limited == nil:
		return p, errors.New("spec.limited is missing")
	default:
		p.shares, p.lendable, p.borrowing = number(limited.NominalConcurrencyShares, 30), number(limited.LendablePercent, 0), number(limited.BorrowingLimitPercent, -1)
		q := limited.LimitResponse.Queuing
		if (limited.LimitResponse.Type == flowcontrolv1.LimitResponseTypeQueue) != (q != nil) {
			return p, errors.New("spec.limited.limitResponse.queuing and type don't agree")
		}
		if q != nil {
			p.queues, p.hand, p.length = int(q.Queues), int(q.HandSize), int(q.QueueLengthLimit)
			if p.queues < 1 || p.hand < 1 || p.hand > min(p.queues, mostHand) || p.length < 1 {
				return p, errors.New("spec.limited.limitResponse.queuing is out of bounds")
			}
		}
	}
	if p.shares < 0 || p.lendable < 0 || p.lendable > 100 || p.borrowing < -1 {
		return p, errors.New("a number of seats is out of bounds")
	}
	return p, nil
}

// mostHand is how many queues a flow can use: validation bounds the bits that a hand takes of a hash to 60, and 20
// factorial has more.
const mostHand = 20

// complete returns the configuration with the mandatory objects as they have to be: requests of
// administrators have no limits, even if other objects are stored.
func (c Config) complete() Config {
	out := Config{}
	for _, m := range flowcontrol.MandatoryLevels() {
		i := slices.IndexFunc(c.Levels, func(l *flowcontrolv1.PriorityLevelConfiguration) bool { return l.Name == m.Name })
		if i >= 0 {
			if _, err := planOf(c.Levels[i]); err == nil {
				continue
			}
			m.UID = c.Levels[i].UID
		}
		out.Levels = append(out.Levels, m)
	}
	for _, l := range c.Levels {
		if !slices.ContainsFunc(out.Levels, func(o *flowcontrolv1.PriorityLevelConfiguration) bool { return o.Name == l.Name }) {
			out.Levels = append(out.Levels, l)
		}
	}
	for _, m := range flowcontrol.MandatorySchemas() {
		if i := slices.IndexFunc(c.Schemas, func(s *flowcontrolv1.FlowSchema) bool { return s.Name == m.Name }); i >= 0 {
			m.UID = c.Schemas[i].UID
		}
		out.Schemas = append(out.Schemas, m)
	}
	for _, s := range c.Schemas {
		if !slices.ContainsFunc(out.Schemas, func(o *flowcontrolv1.FlowSchema) bool { return o.Name == s.Name }) {
			out.Schemas = append(out.Schemas, s)
		}
	}
	slices.SortStableFunc(out.Schemas, func(a, b *flowcontrolv1.FlowSchema) int {
		if mandatory := cmp.Compare(first(b), first(a)); mandatory != 0 {
			return mandatory
		}
		return cmp.Or(cmp.Compare(a.Spec.MatchingPrecedence, b.Spec.MatchingPrecedence), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// first is 1 for the schema of administrators, which comes before others of its precedence.
func first(s *flowcontrolv1.FlowSchema) int {
	if s.Name == flowcontrolv1.FlowSchemaNameExempt {
		return 1
	}
	return 0
}

// seats returns how many seats of all a level has by its shares, and of those the least that it keeps and the most
// that it can have with borrowed ones.
func (p *plan) seats(all, shares int) (nominal, least, most int) {
	if shares > 0 {
		nominal = int(math.Ceil(float64(all) * float64(p.shares) / float64(shares)))
	}
	part := func(percent int) int { return int(math.Round(float64(nominal) * float64(percent) / 100)) }
	most = nominal + all
	if p.borrowing >= 0 {
		most = nominal + part(p.borrowing)
	}
	return nominal, nominal - part(p.lendable), most
}

// width returns how many seats a request of the level can take.
func (p *plan) width(nominal int) int {
	if p.queues == 0 {
		return mostSeats
	}
	return max(1, min(int(math.Ceil(float64(nominal)*widestPart)), nominal/p.hand, mostSeats))
}

const (
	mostSeats  = 10   // of a request, as upstream
	widestPart = 0.15 // of the nominal seats of its level that a request can take, as upstream
)

// Conditions returns copies of the schemas whose condition Dangling is not as it should be, with that condition set.
func (c Config) Conditions(now metav1.Time) []*flowcontrolv1.FlowSchema {
	good := map[string]bool{}
	for _, l := range c.Levels {
		if _, err := planOf(l); err == nil {
			good[l.Name] = true
		}
	}
	var out []*flowcontrolv1.FlowSchema
	for _, s := range c.Schemas {
		want := dangling(s.Spec.PriorityLevelConfiguration.Name, good[s.Spec.PriorityLevelConfiguration.Name])
		i := slices.IndexFunc(s.Status.Conditions, func(c flowcontrolv1.FlowSchemaCondition) bool { return c.Type == want.Type })
		if i >= 0 {
			if is := s.Status.Conditions[i]; is.Status == want.Status && is.Reason == want.Reason && is.Message == want.Message {
				continue
			}
		}
		want.LastTransitionTime = now
		s = s.DeepCopy()
		if i >= 0 {
			s.Status.Conditions[i] = want
		} else {
			s.Status.Conditions = append(s.Status.Conditions, want)
		}
		out = append(out, s)
	}
	return out
}

// dangling is the condition of a schema that refers to a level.
func dangling(level string, exists bool) flowcontrolv1.FlowSchemaCondition {
	c := flowcontrolv1.FlowSchemaCondition{
		Type: flowcontrolv1.FlowSchemaConditionDangling, Status: flowcontrolv1.ConditionFalse, Reason: "Found",
		Message: fmt.Sprintf("This FlowSchema references the PriorityLevelConfiguration object named %q and it exists", level),
	}
	if !exists {
		c.Status, c.Reason = flowcontrolv1.ConditionTrue, "NotFound"
		c.Message = fmt.Sprintf("This FlowSchema references the PriorityLevelConfiguration object named %q but there is no such object", level)
	}
	return c
}
