package test

import (
	_ "k8s.io/client-go/informers"
	_ "k8s.io/client-go/kubernetes"
)
