package grpc

import "fmt"

// codec passes JSON messages through unchanged. Its name makes the content type
// application/grpc+json (SPEC-TOOLS 3.3).
type codec struct{}

// Name implements connect.Codec.
func (codec) Name() string { return codecName }

const codecName = "json"

// Marshal implements connect.Codec. The caller owns the result and reuses its memory.
func (c codec) Marshal(m any) ([]byte, error) { return c.MarshalAppend(nil, m) }

// MarshalAppend lets connect write into its own buffer.
func (codec) MarshalAppend(dst []byte, m any) ([]byte, error) {
	own, ok := m.(*message)
	if !ok {
		return nil, fmt.Errorf("a %T is not an envelope", m)
	}
	return append(dst, *own...), nil
}

// Unmarshal implements connect.Codec. It copies data, which connect overwrites with the next
// message.
func (codec) Unmarshal(data []byte, m any) error {
	own, ok := m.(*message)
	if !ok {
		return fmt.Errorf("a %T is not an envelope", m)
	}
	*own = append((*own)[:0], data...)
	return nil
}
