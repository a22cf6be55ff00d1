package testkit

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
)

// OverflowWindows serves HTTP/2 on a connection, and twice lets the window of each stream grow by the most that a frame can. The client
// that net/http brings waits for ever then (decision 3).
func OverflowWindows(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	const (
		preface  = len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
		head     = 9
		headers  = 1
		settings = 4
		update   = 8
	)
	write := func(kind byte, stream uint32, payload []byte) {
		frame := []byte{0, 0, byte(len(payload)), kind, 0}
		frame = binary.BigEndian.AppendUint32(frame, stream)
		_, _ = conn.Write(append(frame, payload...))
	}
	r := bufio.NewReader(conn)
	if _, err := r.Discard(preface); err != nil {
		return
	}
	write(settings, 0, nil)
	for h := make([]byte, head); ; {
		if _, err := io.ReadFull(r, h); err != nil {
			return
		}
		if _, err := r.Discard(int(h[0])<<16 | int(h[1])<<8 | int(h[2])); err != nil {
			return
		}
		if h[3] == headers {
			for range 2 {
				write(update, binary.BigEndian.Uint32(h[5:]), binary.BigEndian.AppendUint32(nil, 1<<31-1))
			}
		}
	}
}
