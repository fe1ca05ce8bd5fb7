package node_test

import cri "k8s.io/cri-api/pkg/apis/runtime/v1"

type container = cri.Container
