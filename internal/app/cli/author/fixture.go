package author

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/call/fault"
)

// maxFixture is how large a file of a fixture may be.
const maxFixture = 16 << 20

// The statuses of a module's response (SPEC-TOOLS 3.7).
const (
	statusOK     = "ok"
	statusError  = "error"
	statusDenied = "denied"
)

// A fixture is a call of a module, and what is expected of it.
type fixture struct {
	name string // of its file, without .json

	Input json.RawMessage `json:"input"` // the arguments; {} if absent
	// Auth is what the module is told of a tool's auth, whose secrets no test has.
	Auth struct {
		Headers map[string]string `json:"headers"`
	} `json:"auth"`
	Expect expectation `json:"expect"`
	Budget struct {
		Fuel   int64 `json:"fuel"`         // 0: the limit
		Memory int64 `json:"memory_bytes"` // 0: the limit
	} `json:"budget"`
}

// expectation is what a response must be. What is left out may be anything.
type expectation struct {
	Status         string          `json:"status"` // ok if absent
	Output         json.RawMessage `json:"output"`
	OutputContains string          `json:"output_contains"`
	Error          *struct {
		Code            string `json:"code"`
		MessageContains string `json:"message_contains"`
		Retryable       *bool  `json:"retryable"`
	} `json:"error"`
}

// findFixtures returns the files of a folder that are fixtures, in the order of
// their names.
func findFixtures(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		if cause, ok := errors.AsType[*os.PathError](err); ok {
			err = cause.Err
		}
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	var files []string
	for _, entry := range entries {
		if name := entry.Name(); filepath.Ext(name) == ".json" && name[0] != '.' && !entry.IsDir() {
			files = append(files, filepath.Join(dir, name))
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s holds no fixture: want files NAME.json", dir)
	}
	return files, nil
}

// readFixture reads a fixture. Its name is there also when it is none.
func readFixture(path string) (fixture, error) {
	f := fixture{name: strings.TrimSuffix(filepath.Base(path), ".json")}
	data, err := config.ReadRegular(path, maxFixture+1)
	switch {
	case err != nil:
		return f, err
	case len(data) > maxFixture:
		return f, fmt.Errorf("it is over %d MiB", maxFixture>>20)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return f, plainJSONError(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return f, errors.New("something follows its JSON object")
	}
	if len(f.Input) == 0 {
		f.Input = json.RawMessage("{}")
	}
	f.Expect.Status = cmp.Or(f.Expect.Status, statusOK)
	return f, f.check()
}

// plainJSONError says what is wrong with a file in words of its author.
func plainJSONError(err error) error {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("%s: no %s goes there", cmp.Or(wrong.Field, "an object is wanted"), wrong.Value)
	}
	return errors.New(strings.TrimPrefix(err.Error(), "json: "))
}

func (f *fixture) check() error {
	e := f.Expect
	switch {
	case f.Input[0] != '{':
		return errors.New("input: wants an object, the arguments of the call")
	case e.Status != statusOK && e.Status != statusError && e.Status != statusDenied:
		return fmt.Errorf("expect.status: wants ok, error or denied, got %q", e.Status)
	case e.Status == statusOK && e.Error != nil:
		return errors.New("expect.error: does not go with the status ok")
	case e.Status != statusOK && (e.Output != nil || e.OutputContains != ""):
		return fmt.Errorf("expect.output: does not go with the status %s", e.Status)
	case f.Budget.Fuel < 0 || f.Budget.Memory < 0:
		return errors.New("budget: must not be negative")
	}
	return nil
}

// response is what a module said.
type response struct {
	Status string          `json:"status"`
	Output json.RawMessage `json:"output"`
	Error  struct {
		Code string `json:"code"`
	} `json:"error"`
}

// means reports whether a fault is what the module said, and not what is wrong
// with how it said it.
func (r response) means(failed *fault.Error) bool {
	return r.Status != statusOK && (failed.Code != fault.RuntimePolicyInvalid || r.Error.Code == string(failed.Code))
}

// judge returns what is not as expected. failed is the fault that Orla makes of
// an error or a denial.
func (e expectation) judge(r response, failed *fault.Error) []string {
	if r.Status != e.Status {
		text := fmt.Sprintf("status: want %s, got %s", e.Status, r.Status)
		if failed != nil {
			text += fmt.Sprintf(" (%s: %s)", failed.Code, failed.Reason)
		} else if len(r.Output) > 0 {
			text += " with the output " + string(r.Output)
		}
		return []string{text}
	}
	var wrong []string
	if e.Output != nil && !equalJSON(e.Output, r.Output) {
		wrong = append(wrong, fmt.Sprintf("output: want %s, got %s", compactJSON(e.Output), compactJSON(r.Output)))
	}
	if e.OutputContains != "" && !strings.Contains(plainText(r.Output), e.OutputContains) {
		wrong = append(wrong, fmt.Sprintf("output: want …%s…, got %s", e.OutputContains, compactJSON(r.Output)))
	}
	if e.Error != nil && failed != nil {
		if code := e.Error.Code; code != "" && code != string(failed.Code) {
			wrong = append(wrong, fmt.Sprintf("error.code: want %s, got %s (%s)", code, failed.Code, failed.Reason))
		}
		if part := e.Error.MessageContains; !strings.Contains(failed.Reason, part) {
			wrong = append(wrong, fmt.Sprintf("error.message: want …%s…, got %s", part, failed.Reason))
		}
		if want := e.Error.Retryable; want != nil && *want != failed.Retryable() {
			wrong = append(wrong, fmt.Sprintf("error.retryable: want %t, got %t", *want, failed.Retryable()))
		}
	}
	return wrong
}

// plainText is a string itself, and all else as JSON.
func plainText(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	return string(compactJSON(raw))
}

func compactJSON(raw json.RawMessage) []byte {
	var b bytes.Buffer
	if len(raw) == 0 {
		return []byte("nothing")
	}
	if json.Compact(&b, raw) != nil {
		return raw
	}
	return b.Bytes()
}

// equalJSON reports whether two values are the same: in whichever order their
// members stand, and however a number is written.
func equalJSON(a, b json.RawMessage) bool {
	x, errX := decodeJSON(a)
	y, errY := decodeJSON(b)
	return errX == nil && errY == nil && reflect.DeepEqual(x, y)
}

func decodeJSON(raw json.RawMessage) (any, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	err := d.Decode(&v)
	return plainNumbers(v), err
}

// plainNumbers gives numbers that are equal one form. Whole numbers keep all
// their digits.
func plainNumbers(v any) any {
	switch v := v.(type) {
	case json.Number:
		if !strings.ContainsAny(v.String(), ".eE") {
			return v
		}
		n, err := v.Float64()
		if err != nil {
			return v
		}
		return json.Number(strconv.FormatFloat(n, 'f', -1, 64))
	case []any:
		for i := range v {
			v[i] = plainNumbers(v[i])
		}
	case map[string]any:
		for name := range v {
			v[name] = plainNumbers(v[name])
		}
	}
	return v
}
