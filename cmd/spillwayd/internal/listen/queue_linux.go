package listen

import (
	"errors"
	"net"
	"os"
	"syscall"
)

// endQueue stops inner from taking further connections, and returns those in its queue. To close inner would reset them.
func endQueue(inner net.Listener) []net.Conn {
	tcp, ok := inner.(*net.TCPListener)
	if !ok {
		return nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil
	}
	var waiting []*os.File
	_ = raw.Control(func(fd uintptr) {
		for {
			c, _, err := syscall.Accept4(int(fd), syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC)
			if errors.Is(err, syscall.EINTR) || errors.Is(err, syscall.ECONNABORTED) {
				continue
			}
			if err != nil {
				break
			}
			waiting = append(waiting, os.NewFile(uintptr(c), "connection"))
		}
		_ = syscall.Shutdown(int(fd), syscall.SHUT_RD) // at once: what comes in between is reset
	})
	var list []net.Conn
	for _, f := range waiting {
		if c, err := net.FileConn(f); err == nil {
			list = append(list, c)
		}
		f.Close()
	}
	return list
}
