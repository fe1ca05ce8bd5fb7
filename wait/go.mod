module github.com/sampan-io/sampan/wait

go 1.26.0
