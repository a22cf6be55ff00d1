package origin

import (
	"net/http"
	"time"
)

// Transport returns a transport to hosts that strangers have chosen, which have so long to begin an answer. It is without HTTP/2: a host
// can have the client for that which net/http brings wait for ever, whatever the context (Go 1.26). Each request has a connection of its
// own anyway.
func Transport(patience time.Duration) *http.Transport {
	only := new(http.Protocols)
	only.SetHTTP1(true)
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSHandshakeTimeout: patience, ResponseHeaderTimeout: patience,
		MaxResponseHeaderBytes: 64 << 10, DisableKeepAlives: true, Protocols: only,
	}
}
