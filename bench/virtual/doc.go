// Package virtual runs the code of the peers through the scenarios of package sim. The peers read the clock, so each
// run takes place in a bubble of testing/synctest, whose clock follows the simulated one. The peers get the true
// reading of the simulated CPU. Bubbles exist only in tests, so a test makes the figures:
//
//	go test ./bench/virtual -run Figures -json-out figures.json
package virtual
