package main

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMaxMin(t *testing.T) {
	require.Equal(t, []float64{250, 275, 275}, maxMin([]float64{250, 900, 1000}, 800))
	require.Equal(t, []float64{100, 200, 0}, maxMin([]float64{100, 200, 0}, 800))
	require.Equal(t, []float64{375, 375, 250}, maxMin([]float64{1250, 875, 250}, 1000))
}

func TestJain(t *testing.T) {
	require.InDelta(t, 1, jain([]float64{50, 100, 0}, []float64{100, 200, 0}), 1e-12)
	require.InDelta(t, 0.5, jain([]float64{100, 0}, []float64{100, 100}), 1e-12)
	require.Zero(t, jain([]float64{0}, []float64{100}))
}

func TestBar(t *testing.T) {
	full := strings.Repeat("1", 16) + strings.Repeat("2", 8) + strings.Repeat("3", 8)
	require.Equal(t, full+"|        ", bar([]int{50, 25, 25}, 100))
	require.Equal(t, strings.Repeat(" ", 32)+"|        ", bar([]int{0, 0, 0}, 100))
	require.Equal(t, strings.Repeat("2", 32)+"|222     ", bar([]int{0, 110, 0}, 100))
	require.Equal(t, strings.Repeat("3", 32)+"|33333333", bar([]int{0, 0, 1000}, 100))
}

func TestRelay(t *testing.T) {
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer echo.Close()
	go func() {
		for {
			c, err := echo.Accept()
			if err != nil {
				return
			}
			go func() {
				line, _ := bufio.NewReader(c).ReadString('\n')
				fmt.Fprint(c, "heard ", line)
			}()
		}
	}()
	r := &relay{to: echo.Addr().String()}
	require.NoError(t, r.open())
	defer r.cut()
	addr := r.addr
	for range 2 { // before the cut and after
		c, err := net.Dial("tcp", addr)
		require.NoError(t, err)
		fmt.Fprintln(c, "hello")
		in := bufio.NewReader(c)
		line, err := in.ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, "heard hello\n", line)
		r.cut()
		_, err = in.ReadString('\n')
		require.Error(t, err)
		_, err = net.Dial("tcp", addr)
		require.Error(t, err)
		require.NoError(t, r.open())
		require.Equal(t, addr, r.addr)
	}
}
