package filewatch

import "context"

// Follow calls changed once, and then whenever one of the files, which are paths, may have other contents, until ctx is
// cancelled; then it returns nil. It watches their directories, because files are replaced by renaming, and that of a mounted
// ConfigMap by a symbolic link. A path that ends with a slash stands for all files of a directory. Changed is called on the same goroutine.
func Follow(ctx context.Context, files []string, changed func()) error {
	return follow(ctx, files, changed)
}
