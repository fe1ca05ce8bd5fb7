module github.com/sampan-io/sampan/clustertest

go 1.26.0
