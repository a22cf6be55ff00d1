package outbound

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/observe/brief"
)

const (
	maxQuoted     = 512            // bytes of a service's text in a reason
	maxRetryAfter = 24 * time.Hour // longer than any call waits
)

// transportFault is the error for a request without an answer. connected says that there was a
// connection, so that the service may have seen the request.
func transportFault(req *http.Request, err error, connected bool) *fault.Error {
	if f, ok := errors.AsType[*fault.Error](err); ok {
		return f
	}
	if req.Context().Err() != nil {
		return cause(req.Context())
	}
	origin := Origin(req.URL)
	if b, ok := errors.AsType[*blocked](err); ok {
		f := fault.New(fault.RuntimePolicyInvalid, "%s: %v", origin, b)
		f.Unsent = true
		return f
	}
	reason, again := transportReason(err, connected)
	f := fault.New(fault.ExecutionFailed, "%s: %s", origin, reason)
	f.Retry, f.Unsent = &again, !connected
	if !connected && req.URL.Scheme == "https" && notTLS(err) {
		f.Err = ErrNotTLS
	}
	return f
}

// ErrNotTLS is in the chain of the error if the peer of a TLS connection does not seem to speak TLS.
var ErrNotTLS = errors.New("the other end does not speak TLS")

// notTLS reports whether a handshake failed as it does with a peer that does not speak TLS: by an
// answer that is not TLS, or by the end of the connection.
func notTLS(err error) bool {
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return true
	}
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// transportReason says what went wrong, and whether a retry may help. It uses texts of net/http only
// if they do not quote what a service has sent.
func transportReason(err error, connected bool) (reason string, again bool) {
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		return "the name cannot be resolved: " + dns.Err, true
	}
	if cert, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return "its certificate is not trusted: " + cert.Err.Error(), false
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return "it does not speak TLS", false
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && (op.Op == "remote error" || op.Op == "local error") { // of crypto/tls
		return op.Err.Error(), false
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		if connected {
			return "the connection broke before the answer was complete: " + errno.Error(), true
		}
		return "cannot connect: " + errno.Error(), true
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		if !connected {
			return "the connection was closed at once", true
		}
		return "the connection was closed before the answer was complete", true
	}
	if _, ok := errors.AsType[flate.CorruptInputError](err); ok || errors.Is(err, gzip.ErrHeader) || errors.Is(err, gzip.ErrChecksum) {
		return "its answer is labelled gzip but is not gzip", false
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() && !connected {
		return "no connection in time", true
	}
	if _, ok := errors.AsType[textproto.ProtocolError](err); ok {
		return "the header of its answer is malformed", true
	}
	return unquoted(err), true
}

// unquoted returns the text of an error up to its first quote, without the URL that net/http
// prepends.
func unquoted(err error) string {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	text, _, cut := strings.Cut(err.Error(), `"`)
	if cut {
		text = strings.TrimRight(text, " :=") + " (…)"
	}
	return text
}

// StatusFault is the error for an answer with a status other than 2xx (SPEC-TOOLS §4). The reason
// contains the beginning of body; so the caller must have removed the secrets from it, since
// redaction cannot find half a secret.
func StatusFault(tool string, resp *http.Response, body []byte) *fault.Error {
	code, retry := fault.ExecutionFailed, new(false)
	switch status := resp.StatusCode; {
	case status == http.StatusUnauthorized:
		code, retry = fault.AuthInvalid, nil
	case status == http.StatusForbidden:
		code, retry = fault.AuthForbidden, nil
	case status == http.StatusTooManyRequests:
		code, retry = fault.RateLimited, nil
	case status >= 500:
		retry = new(true)
	}
	status := strconv.Itoa(resp.StatusCode)
	if text := http.StatusText(resp.StatusCode); text != "" {
		status += " " + text
	}
	f := fault.New(code, "%s answered %s", tool, status)
	f.Retry, f.RetryAfter = retry, RetryAfter(resp.Header)
	if said := words(resp.Header.Get("Content-Type"), body); said != "" {
		f.Logged = f.Reason
		f.Reason += ": " + said
	}
	return f
}

// words returns the beginning of a body, if it is for people.
func words(contentType string, body []byte) string {
	head := body[:min(len(body), 4*maxQuoted)]
	kind, _, _ := strings.Cut(contentType, ";")
	if strings.EqualFold(strings.TrimSpace(kind), "text/html") || bytes.IndexByte(head, 0) >= 0 {
		return ""
	}
	return Words(string(head), maxQuoted)
}

// Words makes text fit into a line for people: it removes line breaks and control characters, and
// cuts it to about max bytes. The caller must have removed secrets.
func Words(text string, max int) string {
	text = strings.ToValidUTF8(text, "�")
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }), " ")
	return brief.Cut(text, max)
}

// RetryAfter returns the pause that a service asks for, in seconds or until a date. It is 0 if there
// is none, and at most a day.
func RetryAfter(h http.Header) time.Duration {
	text := strings.TrimSpace(h.Get("Retry-After"))
	if text == "" {
		return 0
	}
	if seconds, err := strconv.ParseUint(text, 10, 64); err == nil {
		return time.Duration(min(seconds, uint64(maxRetryAfter/time.Second))) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return min(max(time.Until(at), 0), maxRetryAfter)
	}
	return 0
}
