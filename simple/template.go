package simple

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"text/template/parse"
	"time"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/rawjson"
	"github.com/orla-project/orla/internal/observe/brief"
	"github.com/orla-project/orla/manifest"
)

const (
	// maxArgv bounds the whole command line of a tool of type cli, in bytes (SPEC-TOOLS 3.6).
	maxArgv = 128 << 10
	// maxParts bounds what the templates of a call evaluate, in nodes of templates; an action has three
	// or four, and so many bytes as perPart count as one more where a function reads them. After
	// partsAtOnce, the call waits for a turn of its caller, which it has for turnLength while others wait.
	// Every partsBetween it looks whether that is over, or the call has ended.
	maxParts     = 1_000_000
	perPart      = 100
	partsAtOnce  = 10_000
	partsBetween = 1000
	turnLength   = 5 * time.Millisecond
	// maxNested bounds the nested templates of one argument, each of which takes stack space while it runs.
	maxNested = 1000
	// maxMade bounds the output of all functions of a call's arguments, and so their time. Variables may
	// keep it.
	maxMade = 4 << 20
)

// argument is one argument of a command.
type argument struct {
	literal string                 // its constant value, if trees is nil
	trees   map[string]*parse.Tree // read-only
	uses    uses
}

// argumentsOf parses the templates of a command, in order.
func argumentsOf(templates []string) ([]argument, error) {
	list := make([]argument, 0, len(templates))
	for i, text := range templates {
		trees, err := manifest.ParseTemplate(text)
		if err != nil {
			return nil, fmt.Errorf("args[%d]: %w", i, err)
		}
		if !strings.Contains(text, "{{") {
			list = append(list, argument{literal: text})
			continue
		}
		list = append(list, argument{trees: trees, uses: usesOf(trees)})
	}
	return list, nil
}

// render makes the arguments of one call (SPEC-TOOLS 3.6): one for each template, or none if its
// output is empty. values is the result of used.decoded. An error is invalid_input, and contains no
// value of the call.
func (c *cli) render(ctx context.Context, values any) ([]string, error) {
	var argv []string
	room, ended := maxArgv-len(c.Command)-1, false
	w := work{ctx: ctx}
	defer w.end()
	for i, a := range c.arguments {
		text := a.literal
		if a.trees != nil {
			r := rendering{work: &w, room: room, ended: ended}
			if err := r.evaluate(a.trees, manifest.TemplateName, values); err != nil {
				return nil, refusal(ctx, i, err)
			}
			text = r.out.String()
		}
		if text == "" {
			continue
		}
		ended = ended || a.trees == nil && text == "--"
		if room -= len(text) + 1; room < 0 {
			return nil, refusal(ctx, i, errTooLong)
		}
		argv = append(argv, text)
	}
	return argv, nil
}

var (
	errTooLong  = fmt.Errorf("the command line has more than %d bytes", maxArgv)
	errOption   = errors.New("it would begin with a - that a value brings, and so be an option; where that is meant, the tool can take it as --name=VALUE, or after an argument --")
	errNUL      = errors.New("a value holds a NUL byte, which no argument can")
	errParts    = fmt.Errorf("template error: the templates evaluate more than %d parts", maxParts)
	errNested   = fmt.Errorf("template error: it calls templates more than %d times", maxNested)
	errTooLarge = fmt.Errorf("template error: functions make more than %d bytes", maxMade)
)

// refusal is the error for an argument that cannot be made.
func refusal(ctx context.Context, i int, err error) error {
	if ctx.Err() != nil {
		return fault.From(context.Cause(ctx))
	}
	reason := ""
	for _, known := range []error{errTooLong, errOption, errNUL, errParts, errNested, errTooLarge} {
		if errors.Is(err, known) {
			reason = known.Error()
		}
	}
	if reason == "" {
		const enough = 500 // it repeats a part of the template
		reason = "template error: " + brief.Cut(strings.TrimPrefix(err.Error(), "template: "+manifest.TemplateName+":"), enough)
	}
	return fault.New(fault.InvalidInput, "cli.args[%d]: %s", i, reason).
		LoggedAs(fmt.Sprintf("cli.args[%d] cannot be made of the arguments", i)) // the message may quote values (SPEC I2)
}

// work is what the templates of a call do together.
type work struct {
	ctx    context.Context //nolint:containedctx // of the call, whose templates it counts
	parts  int             // nodes that were evaluated
	next   int             // at how many parts add looks at ctx and the turn
	made   int             // bytes that functions have made, which variables may keep
	inTurn *turns.Account  // whose turn it is; nil before partsAtOnce
	since  time.Time       // when the turn began
}

// add counts parts before they are evaluated. After partsAtOnce it waits until it is the caller's turn, and
// lets others have theirs.
func (w *work) add(parts int) error {
	if w.parts += parts; w.parts > maxParts {
		return errParts
	}
	if w.parts < w.next {
		return nil
	}
	w.next = w.parts + partsBetween
	account := turns.AccountOf(w.ctx)
	if account == nil || w.parts <= partsAtOnce || w.inTurn != nil && time.Since(w.since) < turnLength {
		return w.ctx.Err()
	}
	w.end()
	if err := account.BeginWork(w.ctx); err != nil {
		return err
	}
	w.inTurn, w.since = account, time.Now()
	return w.ctx.Err()
}

// read counts bytes that a function reads.
func (w *work) read(bytes int) error { return w.add(bytes / perPart) }

// end gives the turn back.
func (w *work) end() {
	if w.inTurn != nil {
		w.inTurn.EndWork()
		w.inTurn = nil
	}
}

// rendering is one execution of a template.
type rendering struct {
	work   *work
	out    bytes.Buffer
	room   int  // bytes left for the command line
	ended  bool // a -- precedes it: no argument is an option any more
	vacant bool // the value at the start is empty
	below  bool // the value at the start is a negative number
	nested int
}

// Write receives the output of the template.
func (r *rendering) Write(p []byte) (int, error) {
	switch {
	case len(p) > r.room-r.out.Len():
		return 0, errTooLong
	case bytes.IndexByte(p, 0) >= 0:
		return 0, errNUL
	case r.vacant && r.out.Len() == 0 && bytes.HasPrefix(p, []byte("-")) && !r.ended:
		return 0, errOption // {{.a}}-b without a: the - was not meant to come first
	}
	return r.out.Write(p)
}

// print writes a value. own says that it begins with a - of the template's own, if with any.
func (r *rendering) print(v any, own bool) (err error) {
	if own {
		_, err = r.Write([]byte(textOf(v)))
		return err
	}
	text, err := r.value(v)
	if err == nil {
		_, err = r.Write([]byte(text))
	}
	return err
}

// value returns the text of a value that is about to be printed. A value at the start of an argument
// must not make it an option.
func (r *rendering) value(v any) (string, error) {
	text := textOf(v)
	switch {
	case r.ended || text == "" || isNumber(v) && r.out.Len() > 0:
	case r.below: // -5 is a value, but -5x may be an option
		return "", errOption
	case r.out.Len() == 0 && strings.HasPrefix(text, "-"):
		if !isNumber(v) {
			return "", errOption
		}
		r.below, r.vacant = true, false
	}
	r.vacant = r.vacant || text == ""
	return text, nil
}

// saysItself reports whether the result of a pipeline begins with a - that the template wrote:
// {{"--all"}}, {{printf "--n=%v" .n}}.
func saysItself(pipe *parse.PipeNode) bool {
	if len(pipe.Cmds) != 1 {
		return false
	}
	args := pipe.Cmds[0].Args
	if name, ok := args[0].(*parse.IdentifierNode); ok && len(args) > 1 && (name.Ident == "printf" || name.Ident == "print") {
		args = args[1:]
	}
	switch first := args[0].(type) {
	case *parse.StringNode:
		return strings.HasPrefix(first.Text, "-")
	case *parse.NumberNode:
		return strings.HasPrefix(first.Text, "-")
	}
	return false
}

// isNumber reports whether a value is a number; a negative one is still a value and not an option.
func isNumber(v any) bool {
	switch v.(type) {
	case json.Number, int, int64, float64:
		return true
	}
	return false
}

// shown converts the arguments of print and the like, so that Go's formatting does not show in them, and
// counts how much is read.
func (r *rendering) shown(args []any) (list []any, size int, err error) {
	const encoding = 10 // how many times as long it takes to encode a value as to read its text
	list = make([]any, len(args))
	for i, arg := range args {
		times := 1
		switch arg.(type) {
		case map[string]any, []any:
			arg, times = textOf(arg), encoding
		case null, json.Number, nil:
			arg = textOf(arg)
		}
		list[i] = arg
		length := lengthOf(arg)
		if err := r.work.read(times * length); err != nil {
			return nil, 0, err
		}
		size += length
	}
	return list, size, nil
}

// made calls a function that formats its arguments, unless its output might be too long.
func (r *rendering) made(args []any, write func(shown ...any) string) (any, error) {
	const each = 8 // how many bytes one byte may become: \u2028, &#34;, %e2%80%a8
	list, size, err := r.shown(args)
	switch {
	case err != nil:
		return nil, err
	case each*size > maxMade:
		return nil, errTooLarge
	}
	return r.keep(write(list...))
}

// keep counts what a function has made.
func (r *rendering) keep(text string) (any, error) {
	if r.work.made += len(text); r.work.made > maxMade {
		return nil, errTooLarge
	}
	return text, r.work.ctx.Err()
}

// printf is fmt.Sprintf with a bound for its output, which is checked before: the format may be a
// value of the call.
func (r *rendering) printf(args []any) (any, error) {
	const each = 12 // how many bytes one byte may become, with %+q or % #x
	format, ok := args[0].(string)
	if !ok {
		return nil, fmt.Errorf("wrong type for value; expected string; got %T", args[0])
	}
	number := len(args) == 2 && isNumber(args[1]) && printsNumber(format)
	args, _, err := r.shown(args[1:])
	if err != nil {
		return nil, err
	}
	longest := 0
	for _, arg := range args {
		longest = max(longest, lengthOf(arg))
	}
	size := len(format)
	for rest := format; ; {
		i := strings.IndexByte(rest, '%')
		if i < 0 {
			break
		}
		rest = strings.TrimLeft(rest[i+1:], "+-# 0")
		size += each*longest + 64
		// This treats width, precision and argument indexes alike.
		for digits := 0; rest != "" && strings.IndexByte("0123456789.[]*", rest[0]) >= 0; rest = rest[1:] {
			if rest[0] == '*' {
				return nil, errors.New("a width * is not for templates of arguments")
			}
			if rest[0] < '0' || rest[0] > '9' {
				digits = 0
				continue
			}
			if digits = digits*10 + int(rest[0]-'0'); digits > maxMade {
				return nil, errTooLarge
			}
			size += digits
		}
		if size > maxMade {
			return nil, errTooLarge
		}
	}
	made, err := r.keep(fmt.Sprintf(format, args...))
	if err == nil && number {
		made = negative(made)
	}
	return made, err
}

// lengthOf returns roughly how long a value is as text.
func lengthOf(v any) int {
	if text, ok := v.(string); ok {
		return len(text)
	}
	return 32 // a number or a word
}

// textOf returns a value as an argument has it: a missing value is empty, an object or an array is
// compact JSON, and anything else is as it was written.
func textOf(v any) string {
	switch v := v.(type) {
	case nil, null:
		return ""
	case string:
		return v
	case map[string]any, []any:
		out, _ := rawjson.Encode(v) // it was decoded from JSON
		return string(out)
	default:
		return fmt.Sprint(v)
	}
}

// null is JSON's null. As an empty map it behaves in templates like a missing value: it has no
// members, is false, and a range over it has no rounds.
type null map[string]any

// MarshalJSON returns null.
func (null) MarshalJSON() ([]byte, error) { return []byte("null"), nil }

// plain converts numbers to Go's types if they print with the same digits, so that templates can
// compare and count with them.
func plain(v any) any {
	switch v := v.(type) {
	case nil:
		return null(nil)
	case map[string]any:
		for key, value := range v {
			v[key] = plain(value)
		}
	case []any:
		for i, value := range v {
			v[i] = plain(value)
		}
	case json.Number:
		text := v.String()
		if n, err := strconv.ParseInt(text, 10, 64); err == nil && strconv.FormatInt(n, 10) == text {
			return n
		}
		if f, err := strconv.ParseFloat(text, 64); err == nil && strconv.FormatFloat(f, 'f', -1, 64) == text && fmt.Sprint(f) == text {
			return f
		}
	}
	return v
}
