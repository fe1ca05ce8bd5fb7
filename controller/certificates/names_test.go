package certificates

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/clienttest"
)

func mayBecomeNode(s *authorizationv1.SubjectAccessReviewSpec) bool {
	return s.ResourceAttributes.Subresource == "nodeclient" && s.User == "system:bootstrap:abcdef"
}

// joining is the request of a machine that wants to become node n1, by a bootstrap token.
func joining(t *testing.T, name string) *signingRequest {
	r := renewal(t)
	r.Name, r.UID, r.Spec.Username, r.Spec.Groups = name, types.UID(name), "system:bootstrap:abcdef", []string{"system:bootstrappers"}
	return r
}

// verdict returns the type and the reason of the only condition of a request.
func verdict(t *testing.T, s *clienttest.Server, name string) string {
	t.Helper()
	c := found(s, name).Status.Conditions
	if len(c) != 1 {
		t.Fatalf("the request %s has the conditions %+v", name, c)
	}
	return string(c[0].Type) + " " + c[0].Reason
}

func TestExistingNodeIsNotReplaced(t *testing.T) {
	for _, status := range []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown, ""} {
		t.Run(string(status), func(t *testing.T) {
			node := machine("n1")
			node.Status.Conditions[0].Status = status
			if status == "" {
				node.Status.Conditions = nil
			}
			controlling(t, mayBecomeNode, func(t *testing.T, s *clienttest.Server) {
				if got := verdict(t, s, "a"); got != "Denied NodeExists" {
					t.Errorf("the request is %s", got)
				}
			}, joining(t, "a"), node)
		})
	}
}

// TestNewNameGoesToOneMachine has two machines that request one new name at the same time, and others later.
func TestNewNameGoesToOneMachine(t *testing.T) {
	controlling(t, mayBecomeNode, func(t *testing.T, s *clienttest.Server) {
		verdicts := []string{verdict(t, s, "a"), verdict(t, s, "b")}
		if verdicts[0] == "Approved AutoApproved" {
			verdicts[0], verdicts[1] = verdicts[1], verdicts[0]
		}
		if verdicts[0] != "Denied NameReserved" || verdicts[1] != "Approved AutoApproved" {
			t.Errorf("the requests are %s", verdicts)
		}
		if why := found(s, "b").Status.Conditions[0].Message; has(found(s, "b"), certificatesv1.CertificateDenied) && !strings.Contains(why, `another machine is joining as node "n1": request a was approved at`) {
			t.Errorf("refused because %s", why)
		}
		time.Sleep(registerLimit - 2*time.Second) // of the bubble
		s.Set(t, joining(t, "c"))
		synctest.Wait()
		if got := verdict(t, s, "c"); got != "Denied NameReserved" {
			t.Errorf("before the limit a request is %s", got)
		}
		time.Sleep(3 * time.Second)
		s.Set(t, joining(t, "d"))
		synctest.Wait()
		if got := verdict(t, s, "d"); got != "Approved AutoApproved" {
			t.Errorf("a minute after the first machine has got a certificate, and has created no Node, a request is %s", got)
		}
	}, joining(t, "a"), joining(t, "b"))
}

// TestReservedNameIsReleased checks the two ways in which a name is free before the limit.
func TestReservedNameIsReleased(t *testing.T) {
	for name, release := range map[string]func(t *testing.T, s *clienttest.Server){
		"the Node was deleted": func(t *testing.T, s *clienttest.Server) {
			s.Set(t, machine("n1"))
			synctest.Wait()
			s.Remove(t, clienttest.Find(s, client.Nodes, "", "n1"))
		},
		"the request was deleted": func(t *testing.T, s *clienttest.Server) {
			s.Remove(t, found(s, "a"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			controlling(t, mayBecomeNode, func(t *testing.T, s *clienttest.Server) {
				if got := verdict(t, s, "a"); got != "Approved AutoApproved" {
					t.Fatalf("the first request is %s", got)
				}
				release(t, s)
				synctest.Wait()
				s.Set(t, joining(t, "b"))
				synctest.Wait()
				if got := verdict(t, s, "b"); got != "Approved AutoApproved" {
					t.Errorf("the second request is %s", got)
				}
			}, joining(t, "a"))
		})
	}
}

// TestApprovalOfAnAdministratorReserves checks that it does not matter who has approved the request of the other machine.
func TestApprovalOfAnAdministratorReserves(t *testing.T) {
	controlling(t, mayBecomeNode, func(t *testing.T, s *clienttest.Server) {
		byHand := joining(t, "a")
		byHand.Spec.Username = "jane"
		s.Set(t, byHand)
		synctest.Wait()
		byHand = found(s, "a").DeepCopy()
		byHand.Status.Conditions = approved("a", "", nil).Status.Conditions
		s.Set(t, byHand)
		synctest.Wait()
		s.Set(t, joining(t, "b"))
		synctest.Wait()
		if got := verdict(t, s, "b"); got != "Denied NameReserved" {
			t.Errorf("the request is %s", got)
		}
	})
}
