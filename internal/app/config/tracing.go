package config

import (
	"errors"
	"net/url"
	"strings"
	"unicode"

	"github.com/orla-project/orla/internal/service/address"
)

// TracingConfig says where traces go.
type TracingConfig struct {
	Endpoint    string  `json:"endpoint,omitempty" jsonschema:"Address of an OpenTelemetry collector that speaks OTLP over HTTP, such as http://127.0.0.1:4318. Default: none, and no traces."`
	SampleRatio float64 `json:"sample_ratio,omitempty" jsonschema:"Fraction of the traces that begin here that are recorded, from 0 to 1; a client's traces follow the client's choice. Default 1."`
	HeadersFile string  `json:"headers_file,omitempty" jsonschema:"File of headers to send to the collector, one NAME: VALUE on each line; read again on SIGHUP. Default: none."`
}

// CollectorURL parses an address that traces are sent to.
func CollectorURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" || strings.ContainsFunc(text, unicode.IsSpace):
		return nil, errors.New("wants an http or https address, such as http://127.0.0.1:4318")
	case u.User != nil:
		return nil, errors.New("must not have a password; use headers")
	case strings.Contains(text, "#"):
		return nil, errors.New("must not have a fragment (#), which is never sent")
	}
	return u, address.CheckHost(u)
}

// traces checks the section tracing, which can only be set in a file.
func (v *verdict) traces() {
	t := v.Tracing
	if t.Endpoint != "" {
		if _, err := CollectorURL(t.Endpoint); err != nil {
			v.doc.Faultf("tracing.endpoint", "%s", err)
		}
	}
	if t.SampleRatio < 0 || t.SampleRatio > 1 {
		v.doc.Faultf("tracing.sample_ratio", "must be between 0 and 1, got %s", NumberText(t.SampleRatio))
	}
}
