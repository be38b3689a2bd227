// Package migrate holds the code before and after of the pages in docs/migrate. Its tests run both, and check the differences
// that the pages state.
package migrate
