module github.com/sampan-io/sampan/test/operators

go 1.26.0

require (
	github.com/rogpeppe/go-internal v1.16.0
	github.com/sampan-io/sampan v0.0.0
	github.com/sampan-io/sampan/clustertest v0.0.0
	github.com/sampan-io/sampan/test v0.0.0
)

require (
	github.com/vishvananda/netlink v1.3.1 // indirect
	github.com/vishvananda/netns v0.0.5 // indirect
)

require (
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/tools v0.51.0 // indirect
)

replace (
	github.com/sampan-io/sampan => ../..
	github.com/sampan-io/sampan/clustertest => ../../clustertest
	github.com/sampan-io/sampan/test => ../
	github.com/sampan-io/sampan/wait => ../../wait
)
