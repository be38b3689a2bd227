package overload

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// transportEnv makes the server process of a test use octets in place of net/http.
const transportEnv = "SPILLWAY_OVERLOAD_TEST_TRANSPORT"

func testConfig() Config {
	if os.Getenv(transportEnv) == "" {
		// The work takes longer than a second of the load, so that it must be patient. The server is a process of its own.
		return Config{Guards: []Guard{{Name: "shed", Wrap: shed}}, Works: []Work{{
			Name: "patient", Capacity: 100, SLO: 20 * time.Second, Deadline: 21 * time.Second,
			New: each(func(*Burner) { time.Sleep(1200 * time.Millisecond) }),
		}}}
	}
	return Config{Transport: octets{}, Guards: []Guard{{Name: "half"}, {Name: "broken"}}}
}

// octets is the smallest protocol there is: a request is an octet, and so is its answer.
type octets struct{}

func (octets) NewServer(guard string, s *Service) (Server, error) {
	if guard == "broken" {
		return nil, errors.New("no such guard")
	}
	return octetServer{guard, s}, nil
}

func (octets) NewClient(addr string) (Client, error) { return octetClient(addr), nil }

type octetServer struct {
	guard string
	s     *Service
}

func (o octetServer) View() View { return View{Reason: o.guard} }

func (o octetServer) Serve(l net.Listener) error {
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			var b [1]byte
			if _, err := io.ReadFull(c, b[:]); err != nil {
				return
			}
			o.s.Arrive()
			if o.guard == "half" && o.s.arrived.Load()%2 == 0 {
				_, _ = c.Write([]byte{'n'})
				return
			}
			o.s.Work()
			_, _ = c.Write([]byte{'y'})
		}()
	}
}

type octetClient string

func (octetClient) Close() {}

func (o octetClient) Do(deadline time.Time) error {
	c, err := (&net.Dialer{Deadline: deadline}).Dial("tcp", string(o))
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(deadline)
	b := []byte{'?'}
	if _, err := c.Write(b); err != nil {
		return err
	}
	if _, err := io.ReadFull(c, b); err != nil {
		return err
	}
	if b[0] == 'n' {
		return ErrRefused
	}
	return nil
}

func TestAnotherTransport(t *testing.T) {
	t.Setenv(transportEnv, "octets")
	c := testConfig()
	var out bytes.Buffer
	o, err := c.parse([]string{"-loads", "0.5", "-seconds", "1", "-settle", "0", "-guards", "half", "-recheck=false"}, &out)
	require.NoError(t, err)
	o.capacityTime = 500 * time.Millisecond

	run, err := c.measure(context.Background(), o, newProgress(&out))
	require.NoError(t, err)
	require.InDelta(t, 0.5, run.Results[0].ShedAll, 0.1, "every second request is refused")
	require.Zero(t, run.Results[0].Failed)
	server := run.Series[0].Server
	require.NotEmpty(t, server)
	require.Equal(t, "half", server[len(server)-1].Reason, "the server tells what its guard believes")
	require.Greater(t, server[len(server)-1].Arrived, server[len(server)-1].Started)

	o.Guards = []string{"broken"}
	_, err = c.measure(context.Background(), o, newProgress(&out))
	require.Error(t, err)
}

func TestFixedLimit(t *testing.T) {
	limit, ok := FixedLimit("fixed:4")
	require.True(t, ok)
	require.Equal(t, 4, limit)
	for _, name := range []string{"", "none", "fixed:", "fixed:0", "fixed:-1", "fixed:x", "4"} {
		_, ok := FixedLimit(name)
		require.False(t, ok, name)
	}
}
