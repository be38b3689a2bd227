package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// A strip draws, live, how much each server lets through: one line for several windows.
type strip struct {
	out         io.Writer
	of          *drama
	first, next int64 // windows
	step        int64
	said        []remark
}

// A remark is printed before the line that contains its time.
type remark struct {
	at   int64 // window
	text string
}

// barWidth is how many columns the limit takes.
const barWidth = 32

func (s *strip) begin(out io.Writer, of *drama) {
	s.out, s.of = out, of
	s.step = max(int64(of.phase/(12*window)), 5)
	s.first = windowOf(time.Now()) + 1
	s.next = s.first
	fmt.Fprintf(out, "Let through by each server; %s| is the limit of %d per second\n", strings.Repeat(" ", barWidth-19), of.rate)
}

func (s *strip) say(text string) { s.said = append(s.said, remark{windowOf(time.Now()), text}) }

// draw draws the lines that end before a window.
func (s *strip) draw(end int64) {
	for ; s.next+s.step <= end; s.next += s.step {
		for len(s.said) > 0 && s.said[0].at < s.next+s.step {
			fmt.Fprintf(s.out, "-- %s\n", s.said[0].text)
			s.said = s.said[1:]
		}
		admitted := make([]int, len(s.of.nodes))
		var all moment
		for i, n := range s.of.nodes {
			for w := s.next; w < s.next+s.step; w++ {
				m := n.in(w)
				admitted[i] += m.admitted
				all = moment{all.sent + m.sent, all.errors + m.errors, all.admitted + m.admitted}
			}
		}
		seconds := float64(s.step) * window.Seconds()
		fmt.Fprintf(s.out, "%5.1f s  %s %5.0f of %5.0f/s, %d errors\n", float64(s.next+s.step-s.first)*window.Seconds(),
			bar(admitted, float64(s.of.rate)*seconds), float64(all.admitted)/seconds, float64(all.sent)/seconds, all.errors)
	}
}

// bar returns a line in which the columns of each server show its share of the limit.
func bar(admitted []int, limit float64) string {
	const room = barWidth * 5 / 4
	var b strings.Builder
	sum := 0
	for i, n := range admitted {
		sum += n
		for b.Len() < min(int(float64(sum)/limit*barWidth+0.5), room) {
			b.WriteByte(byte('1' + i%9))
		}
	}
	line := fmt.Sprintf("%-*s", room, b.String())
	return line[:barWidth] + "|" + line[barWidth:]
}
