package schema

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/orla-project/orla/internal/mcp/rawjson"
)

// maxSchema is the size in bytes over which a schema is refused unread.
const maxSchema = 1 << 20

// A CompileError says what is wrong in a schema. Faults is never empty.
type CompileError struct {
	Faults []Fault
	// Weight is what its patterns have cost, or all of it if it could be compiled, as that of a Schema is.
	Weight int64
}

// Fault is one thing that is wrong in a schema or a value.
type Fault struct {
	// Path leads to it from the root: names of members, and indexes in lists.
	Path []string
	Msg  string
}

// String gives path: what is wrong.
func (f Fault) String() string {
	if len(f.Path) == 0 {
		return f.Msg
	}
	return strings.Join(f.Path, ".") + ": " + f.Msg
}

// Error lists the faults on one line.
func (e *CompileError) Error() string {
	texts := make([]string, len(e.Faults))
	for i, f := range e.Faults {
		texts[i] = f.String()
	}
	return strings.Join(texts, "; ")
}

func faulty(path []string, format string, args ...any) *CompileError {
	return &CompileError{Faults: []Fault{{Path: path, Msg: fmt.Sprintf(format, args...)}}}
}

// Compile compiles a schema without a $schema as draft 2020-12. Formats are
// asserted. References lead nowhere but into raw itself. The error is nil or a
// *CompileError.
func Compile(raw json.RawMessage) (*Schema, error) {
	s, _, err := compile(raw)
	return s, err
}

// CompileObject is Compile for a schema whose root must say "type": "object",
// as MCP wants it of a tool's output schema.
func CompileObject(raw json.RawMessage) (*Schema, error) {
	s, _, err := compileObject(raw)
	return s, err
}

// CompileInput is CompileObject for a tool's input schema, whose x-mcp-header
// annotations must be sound as well.
func CompileInput(raw json.RawMessage) (*Schema, error) {
	key := sha256.Sum256(raw)
	if s := inputs.get(key); s != nil {
		return s, nil
	}
	s, err := compileInput(raw)
	if err == nil && s.plain {
		inputs.put(key, s)
	}
	return s, err
}

func compileInput(raw json.RawMessage) (*Schema, error) {
	s, doc, err := compileObject(raw)
	if err != nil {
		return nil, err
	}
	if err := checkHeaders(doc); err != nil {
		return nil, s.refusedFor(err)
	}
	return s, nil
}

func compileObject(raw json.RawMessage) (*Schema, map[string]any, error) {
	s, doc, err := compile(raw)
	if err != nil {
		return nil, nil, err
	}
	object, ok := doc.(map[string]any)
	if !ok {
		return nil, nil, s.refusedFor(faulty(nil, "must be a mapping whose type is object, got %s", inJSON(doc)))
	}
	switch kind, given := object["type"]; {
	case !given:
		return nil, nil, s.refusedFor(faulty([]string{"type"}, "is required at the root, and must be object"))
	case kind != "object":
		return nil, nil, s.refusedFor(faulty([]string{"type"}, "must be object at the root, got %s", inJSON(kind)))
	}
	return s, object, nil
}

// refusedFor returns why a schema is refused though it was compiled, which has cost as much as one that is not.
func (s *Schema) refusedFor(err error) error {
	if e, is := errors.AsType[*CompileError](err); is {
		e.Weight = s.weight
	}
	return err
}

// nothingElse is the loader of whatever is not in the schema itself.
type nothingElse struct{}

var errOutside = errors.New("outside the schema")

func (nothingElse) Load(string) (any, error) { return nil, errOutside }

// base is the address that the compiler knows a schema by. Relative references
// resolve against it, and nothing can be loaded from there.
const base = "orla:///schema"

func compile(raw json.RawMessage) (*Schema, any, error) {
	doc, weight, err := read(raw)
	if err != nil {
		return nil, nil, err
	}
	s := &Schema{source: &source{raw: raw}, weight: weight}
	if isPlain(doc) { // a call that needs it compiled has it compiled
		s.plain, s.shallow = true, shallowOf(doc)
		return s, doc, nil
	}
	found, err := build(raw, doc, weight)
	if err != nil {
		return nil, nil, err
	}
	s.shallow, s.weight = shallowOf(doc), found.weight
	if s.shallow == nil { // the first call is likely to need it
		kept.put(s.source, found, false)
	}
	return s, doc, nil
}

// compiledOf returns a schema as the validator has it.
func compiledOf(raw json.RawMessage) (*compiled, error) {
	doc, weight, err := read(raw)
	if err != nil {
		return nil, err
	}
	return build(raw, doc, weight)
}

// read returns a schema as a value, if it is small enough to be compiled, and how many bytes it takes when it
// is, but for its patterns.
func read(raw json.RawMessage) (doc any, weight int64, err error) {
	if len(raw) > maxSchema {
		return nil, 0, faulty(nil, "has %d bytes, more than the %d allowed", len(raw), maxSchema)
	}
	// Empty objects and arrays are counted twice there.
	if rawjson.Valid(raw) && rawjson.Values(raw) > 2*maxValues {
		return nil, 0, faulty(nil, "has more than the %d values allowed", maxValues)
	}
	doc, err = jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil, 0, faulty(nil, "is not JSON: %v", err)
	}
	if f := bounded(doc, nil); f != nil {
		return nil, 0, &CompileError{Faults: []Fault{*f}}
	}
	weight, f := small(doc)
	if f != nil {
		return nil, 0, &CompileError{Faults: []Fault{*f}}
	}
	return doc, int64(len(raw)) + weight, nil
}

// build compiles a schema that was read.
func build(raw json.RawMessage, doc any, weight int64) (found *compiled, err error) {
	patterns := patterns{known: map[string]*pattern{}}
	defer func() {
		if e, refused := errors.AsType[*CompileError](err); refused {
			e.Weight = perInstruction * int64(min(patterns.spent, maxPatterns))
		}
	}()
	// The compiler is not ours and reads what strangers write. It is thrown
	// away after a panic, so nothing is left half done.
	defer func() {
		if r := recover(); r != nil {
			found, err = nil, faulty(nil, "cannot be compiled: %v", r)
		}
	}()
	c := jsonschema.NewCompiler()
	c.UseLoader(nothingElse{})
	c.AssertFormat()
	c.UseRegexpEngine(patterns.compile)
	if err := c.AddResource(base, doc); err != nil {
		return nil, explain(doc, len(raw), err)
	}
	root, err := c.Compile(base)
	if patterns.spent > maxPatterns {
		// The compiler would say that one of them is none.
		return nil, faulty(nil, "has patterns that are too large together: they count to more than %d", maxPatterns)
	}
	if err != nil {
		return nil, explain(doc, len(raw), err)
	}
	found, err = graphOf(root)
	if err != nil {
		return nil, err
	}
	found.weight = weight + int64(perInstruction*patterns.spent)
	return found, nil
}

// metaschemas has what the schemas of each dialect have to fit, a *compiled by its URL.
var metaschemas sync.Map

func metaschema(url string) (*compiled, error) {
	if known, ok := metaschemas.Load(url); ok {
		return known.(*compiled), nil
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(nothingElse{})
	c.AssertFormat()
	root, err := c.Compile(url)
	if err != nil {
		return nil, err
	}
	found, err := graphOf(root)
	if err == nil {
		metaschemas.Store(url, found)
	}
	return found, err
}

// unending is the context of a check that nothing ends.
var unending = context.Background()

// misfitsOf says why the compiler does not take a schema of so many bytes, or a part of it, for one of its dialect.
// To check one that is small enough to be compiled takes a moment.
func misfitsOf(doc any, size int, e *jsonschema.SchemaValidationError) []Fault {
	found, ok := errors.AsType[*jsonschema.ValidationError](e.Err)
	if !ok {
		return nil
	}
	dialect, err := metaschema(found.SchemaURL)
	if err != nil {
		return nil
	}
	for _, token := range pointer(e.URL) {
		doc = member(doc, token)
	}
	r := report{root: doc, most: mostCollected}
	checking := &evaluation{ctx: unending, of: dialect}
	if _, err := checking.check(doc, size, &r); err != nil {
		return nil
	}
	return r.sorted()
}

// explain turns the compiler's error into one with places in the schema, which has so many bytes.
func explain(doc any, size int, err error) *CompileError {
	if e, ok := errors.AsType[*jsonschema.SchemaValidationError](err); ok {
		if faults := misfitsOf(doc, size, e); len(faults) > 0 {
			return &CompileError{Faults: faults}
		}
	}
	if e, ok := errors.AsType[*jsonschema.InvalidRegexError](err); ok {
		return faulty(pointer(e.URL), "is not a regular expression: %v", e.Err)
	}
	if e, ok := errors.AsType[*jsonschema.LoadURLError](err); ok {
		if name, inside := strings.CutPrefix(e.URL, "orla:///"); inside {
			e.URL = name
		}
		return faulty(nil, "refers to %q, which is outside the schema; only references that begin with # are followed", e.URL)
	}
	if e, ok := errors.AsType[*jsonschema.JSONPointerNotFoundError](err); ok {
		return faulty(nil, "refers to %q, which is not in the schema", strings.TrimPrefix(e.URL, base))
	}
	return faulty(nil, "%s", strings.ReplaceAll(err.Error(), base, ""))
}

// pointer returns the path in a location's fragment.
func pointer(location string) []string {
	_, fragment, _ := strings.Cut(location, "#")
	if fragment == "" {
		return nil // the root
	}
	if decoded, err := url.PathUnescape(fragment); err == nil {
		fragment = decoded
	}
	var path []string
	for token := range strings.SplitSeq(strings.TrimPrefix(fragment, "/"), "/") {
		path = append(path, strings.NewReplacer("~1", "/", "~0", "~").Replace(token))
	}
	return path
}
