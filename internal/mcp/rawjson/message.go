package rawjson

import stdjson "encoding/json"

// Message is a JSON-RPC message, taken apart and not decoded: its members as they came, nil
// for those that it lacks.
type Message struct {
	Version stdjson.RawMessage // jsonrpc
	ID      stdjson.RawMessage
	Method  stdjson.RawMessage
	Params  stdjson.RawMessage
	Result  stdjson.RawMessage
	Error   stdjson.RawMessage
}

// ReadMessage takes a message apart. Of a member that is there twice it is the last. It
// reports whether raw is an object whose keys have no escapes: otherwise members may be
// missing. raw must be valid JSON.
func ReadMessage(raw []byte) (m Message, plain bool) {
	plain = Members(raw, func(key []byte, value stdjson.RawMessage) bool {
		switch string(key) {
		case "jsonrpc":
			m.Version = value
		case "id":
			m.ID = value
		case "method":
			m.Method = value
		case "params":
			m.Params = value
		case "result":
			m.Result = value
		case "error":
			m.Error = value
		}
		return true
	})
	return m, plain
}

// Get returns a member of an object, the last of those with this key; nil for none, and of
// what is not an object. A key with escapes, and what follows it, is not found.
func Get(object []byte, key string) (found stdjson.RawMessage) {
	if !IsObject(object) {
		return nil
	}
	Members(object, func(its []byte, value stdjson.RawMessage) bool {
		if string(its) == key {
			found = value
		}
		return true
	})
	return found
}
