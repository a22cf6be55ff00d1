// Package schema checks JSON values against JSON Schemas (drafts 4 to 2020-12)
// and says of every misfit which argument it is about. Schemas may come from
// strangers: nothing outside a schema is ever read, and one that would cost too
// much to compile or to check is refused. So do values: what a check may cost is
// bounded, and its context ends it (docs/decisions/0031).
//
// Its invariant: a Schema that Compile returned can be used on any JSON value.
package schema

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/rawjson"
)

// Schema is a compiled JSON Schema. It is safe for concurrent use.
type Schema struct {
	source *source
	weight int64
	// plain: it was not compiled to be checked.
	plain bool
	// shallow, if not nil, tells of most arguments that they fit.
	shallow *shallow
}

// Weight is how many bytes the schema takes while it is compiled, more or less. To compile it
// costs in proportion.
func (s *Schema) Weight() int64 { return s.weight }

// Validate checks a call's arguments, which must be well-formed JSON. Nothing
// and null stand for no arguments. The error is nil, ctx's cause if that ended first,
// or a *fault.Error of fault.InvalidInput that names every argument that does not fit,
// up to a number, or says that the check takes too long.
func (s *Schema) Validate(ctx context.Context, args json.RawMessage) error {
	args = bytes.TrimSpace(args)
	if len(args) == 0 || string(args) == "null" {
		args = json.RawMessage("{}")
	}
	if args[0] != '{' {
		return fault.New(fault.InvalidInput, "arguments: must be a JSON object, got %s", shorten(string(args[:min(len(args), 128)]))).
			LoggedAs("arguments: must be a JSON object")
	}
	if s.shallow.isOpen() || s.shallow != nil && s.shallow.fits(args) {
		return nil
	}
	misfits, where, err := s.misfits(ctx, args)
	if err != nil {
		return err
	}
	if misfits != "" {
		return fault.New(fault.InvalidInput, "arguments: %s", misfits).LoggedAs(strings.TrimSpace("arguments that do not fit: " + where))
	}
	return nil
}

// ValidateOutput checks what a tool answered. The error names what does not fit, up to a
// number, or says that raw is not JSON, or is ctx's cause.
func (s *Schema) ValidateOutput(ctx context.Context, raw json.RawMessage) error {
	if s.shallow.isOpen() && json.Valid(raw) && bytes.TrimSpace(raw)[0] == '{' {
		return nil
	}
	misfits, _, err := s.misfits(ctx, raw)
	if err != nil {
		return err
	}
	if misfits != "" {
		return errors.New(misfits)
	}
	return nil
}

// large is the size from which it matters how fast arguments are decoded.
const large = 4 << 10

func decode(raw []byte) (any, error) {
	if len(raw) >= large && rawjson.Valid(raw) {
		return rawjson.Decode(raw)
	}
	return jsonschema.UnmarshalJSON(bytes.NewReader(raw))
}

// heavy is the size of a value from which its checks wait for each other: it takes many
// times its size to decode.
const heavy = 256 << 10

// maxWeight bounds what a value takes that is decoded to be checked, in bytes (rawjson.Weight).
const maxWeight = 80 << 20

// tooMuch says why a heavy value is not decoded; "" for one that is.
func tooMuch(raw []byte) string {
	switch {
	case !rawjson.Valid(raw):
		return fmt.Sprintf("is not JSON: %v", json.Unmarshal(raw, new(json.RawMessage)))
	case rawjson.Weight(raw) > maxWeight:
		return "has too many values to be checked against the schema; send fewer"
	}
	return ""
}

// places are held by the checks of heavy values, a few at a time, and not all of them by
// one caller beside others (SPEC N2).
var places = turns.NewQueue(2, 1)

// misfits lists what in raw does not fit, and its names alone, or returns "". The error is
// ctx's cause.
func (s *Schema) misfits(ctx context.Context, raw []byte) (list, where string, err error) {
	if len(raw) >= heavy {
		account, why := turns.AccountOf(ctx), ""
		if err := account.Work(ctx, len(raw), func() { why = tooMuch(raw) }); err != nil {
			return "", "", err
		}
		if why != "" {
			return why, "", nil
		}
		owner := account.Owner()
		if err := places.Take(ctx, owner); err != nil {
			return "", "", err
		}
		defer places.Give(owner)
	}
	// Formats and patterns are not ours, and meet what strangers wrote. They keep no
	// state, so nothing is left half done.
	defer func() {
		if r := recover(); r != nil {
			list, where, err = fmt.Sprintf("cannot be checked: %v", r), "", nil
		}
	}()
	value, err := decode(raw)
	if err != nil {
		return fmt.Sprintf("is not JSON: %v", err), "", nil
	}
	if f := bounded(value, nil); f != nil {
		return f.String(), strings.Join(f.Path, "."), nil
	}
	c, err := s.source.get(ctx)
	if err != nil {
		return "", "", err
	}
	r := report{root: value, known: c.root.Properties, most: mostCollected}
	fits, err := c.check(ctx, value, len(raw), &r)
	switch {
	case errors.Is(err, errCostly):
		return err.Error(), "", nil
	case err != nil:
		return "", "", err
	case fits:
		return "", "", nil
	case len(r.faults) == 0:
		return "does not fit the schema", "", nil // what does not was not found in time
	}
	return r.String(), r.names(), nil
}
