// Package pages reads the Markdown pages of the repository and finds their faults. These are links without a target,
// sentences that are too long or not plain, and options and metrics that no page explains.
//
//	tree := pages.Tree{Root: "."}
//	problems, err := tree.DeadLinks()
//
// The tests of the root module fail on these problems, and internal/doccheck counts them.
package pages
