# Targets: build test tidy lint prose generate bench fuzz upstream critest conformance demo clean. See CONTRIBUTING.md.

SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := build

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w
# gRPC's tracing uses text/template, which calls methods by name. With it the linker keeps every
# method of every type, and the program is a seventh larger.
# internal/h2 serves HTTP/2, and golang.org/x/net/http2 asks for it: a third implementation is not needed.
LEAN    := grpcnotrace nethttpomithttp2
# Go aligns functions to 32 bytes. There are so many small ones that 16 make the program 0.6 MB smaller.
SMALL   := -funcalign=16
# Packages that run once for a command, or seldom. Without inlining they make the program 0.5 MB smaller.
COLD    := sigs.k8s.io/kustomize github.com/spf13 github.com/godbus github.com/coreos github.com/docker \
	github.com/google/go-containerregistry github.com/container-storage-interface k8s.io/client-go/tools/clientcmd \
	k8s.io/mount-utils github.com/google/gnostic-models github.com/vishvananda/netlink github.com/google/nftables \
	github.com/antlr4-go go.yaml.in/yaml k8s.io/kubelet golang.org/x/text github.com/fxamacker/cbor \
	github.com/opencontainers k8s.io/utils/cpuset github.com/sampan-io/sampan/cli github.com/sampan-io/sampan/cluster/local
EMBED   := cmd/sampan/sampan-runtime.zst
DEMO    := runtime/image/demo/demo.bin
GO_FILES := Makefile $(wildcard $(shell git ls-files -co --exclude-standard '*.go' go.mod go.sum 2>/dev/null))

.PHONY: build test tidy lint prose generate bench fuzz upstream critest conformance demo clean tools

## build: bin/sampan, with the container runtime and the demo image inside
build: bin/sampan

bin/sampan: $(EMBED) $(GO_FILES)
	CGO_ENABLED=0 go build -trimpath -tags 'embed $(LEAN)' $(COLD:%=-gcflags=%/...=-l) -ldflags '$(LDFLAGS) $(SMALL) -X main.version=$(VERSION)' -o $@ ./cmd/sampan

bin/sampan-runtime: $(DEMO) $(GO_FILES) | tools
	CGO_ENABLED=1 go build -trimpath -tags 'seccomp netgo osusergo embed $(LEAN)' -ldflags "$(LDFLAGS) -extldflags -static -X main.version=$(VERSION)" -o $@ ./cmd/sampan-runtime

$(EMBED): bin/sampan-runtime
	zstd -q --ultra -22 -f $< -o $@

$(DEMO): $(wildcard cmd/sampan-demo/*.go)
	CGO_ENABLED=0 go build -trimpath -tags nethttpomithttp2 -ldflags '$(LDFLAGS)' -o $@ ./cmd/sampan-demo # it needs no HTTP/2

## tools: checks for the system packages that the build needs, and installs them on Debian
tools:
	@.ci/tools build

## test: all tests; installs the packages that they need
test: build prose tidy
	@.ci/tools test
	.ci/test

## prose: checks comments, Markdown and messages against the style in .vale
VALE := go run github.com/vale-cli/vale/v3/cmd/vale@v3.22.0
prose:
	$(VALE) --output=line .
	go run mvdan.cc/gofumpt@v0.12.0 -l -d $$(git ls-files '*.go' | grep -v -e '\.pb\.go$$' -e /zz_generated)

## tidy: checks go.mod and go.sum of the modules that contain the product
tidy:
	.ci/tidy

## lint: golangci-lint and prose
GOLANGCI := go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0 run --max-issues-per-linter 0 --max-same-issues 0
lint: prose
	$(GOLANGCI) ./... ./wait/... ./clustertest/...
	cd test && GOWORK=off $(GOLANGCI) ./...
	cd test/storebench && GOWORK=off $(GOLANGCI) ./...
	cd test/waitbench && GOWORK=off $(GOLANGCI) ./...
	cd examples/controller && GOWORK=off $(GOLANGCI) ./...
	cd test/upstream && GOWORK=off $(GOLANGCI) ./...
	cd test/critest && GOWORK=off $(GOLANGCI) ./...
	cd test/upstream/policy && GOWORK=off $(GOLANGCI) ./...
	cd test/operators && GOWORK=off $(GOLANGCI) ./...

## generate: the rules in catalog/declared, from the types of k8s.io/api; after an update of that module
generate:
	.ci/generate

## bench: ratios measured in one run, each against a baseline on the same machine
bench: build
	@.ci/tools test
	.ci/bench

## fuzz: the long runs: crash tests and fuzz targets
fuzz:
	.ci/fuzz

## upstream: tests against upstream's servers, which it builds first; slow
upstream: build
	.ci/upstream

## critest: the conformance tests of CRI against the container runtime; arguments in CRITEST, such as -ginkgo.focus=Streaming
critest: build
	.ci/critest $(CRITEST)

## conformance: the conformance tests of Kubernetes against a cluster of two nodes; FOCUS is a regular expression of names. See docs/conformance.md
conformance: build
	FOCUS='$(subst ','\'',$(FOCUS))' .ci/conformance

## demo: starts a cluster, shows a rolling update and a job, and leaves it running
demo: build
	bin/sampan demo

clean:
	rm -rf bin $(EMBED) $(DEMO)
