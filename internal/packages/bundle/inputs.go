package bundle

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/orla-project/orla/internal/packages/registry"
)

// maxInputs bounds the arguments, variables and headers of a server.
const maxInputs = 200

// mostText bounds a value with what stands in it for names, in bytes.
const mostText = 64 << 10

// value is what an input came to.
type value struct {
	text   string
	there  bool
	secret bool
}

// input returns the value of an input: fixed, answered or the default.
func (a *asker) input(key string, in registry.Input) (value, error) {
	values, secret, err := a.values(key, in, false)
	if err != nil || len(values) == 0 {
		return value{}, err
	}
	return value{values[0], true, secret}, nil
}

var placeholder = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\{([A-Za-z0-9_.-]{1,64})\}`) })

func (a *asker) values(key string, in registry.Input, multiple bool) (values []string, secret bool, err error) {
	if len(a.questions) > maxInputs {
		return nil, false, errors.New("it has too many inputs")
	}
	if in.Value == "" {
		return a.ask(question(key, in, multiple)), in.IsSecret, nil
	}
	// A fixed value, in which {NAME} stands for a variable.
	answers := map[string]string{}
	secret = in.IsSecret
	for _, name := range slices.Sorted(maps.Keys(in.Variables)) {
		of := in.Variables[name]
		if !strings.Contains(string(in.Value), "{"+name+"}") {
			continue
		}
		if of.Value != "" {
			answers[name] = string(of.Value)
			continue
		}
		got := a.ask(question(key+"."+name, of, false))
		if len(got) == 0 {
			return nil, secret, nil // not given, and so the whole is not
		}
		answers[name], secret = got[0], secret || of.IsSecret
	}
	text, err := filled(string(in.Value), func(name string) (string, bool) {
		answer, ok := answers[name]
		return answer, ok
	})
	if err != nil {
		return nil, secret, fmt.Errorf("the value of %q %w", line(key, 60), err)
	}
	if strings.Contains(text, "\x00") {
		return nil, secret, fmt.Errorf("the value of %q has a NUL", line(key, 60))
	}
	return []string{text}, secret, nil
}

// filled returns a text with what stands for each {NAME}. What is not known stays.
func filled(text string, known func(name string) (string, bool)) (string, error) {
	left := mostText - len(text)
	out := placeholder().ReplaceAllStringFunc(text, func(whole string) string {
		if left < 0 {
			return "" // a name may be there many times
		}
		stands, ok := known(whole[1 : len(whole)-1])
		if !ok {
			return whole
		}
		left -= len(stands)
		return stands
	})
	if left < 0 {
		return "", fmt.Errorf("has over %d bytes", mostText)
	}
	return out, nil
}

func question(key string, in registry.Input, multiple bool) Question {
	q := Question{
		Key: line(key, 150), Description: in.Description, Type: String, Required: in.IsRequired, Secret: in.IsSecret,
		Multiple: multiple, Default: string(in.Default),
	}
	switch in.Format {
	case "number", "boolean":
		q.Type = in.Format
	case "filepath":
		q.Type = File
		if !strings.HasPrefix(q.Default, "/") {
			q.Default = "" // such as one below somebody's home
		}
	}
	for _, c := range in.Choices {
		q.Choices = append(q.Choices, line(string(c), 200))
	}
	if q.Default != "" && q.wrong(q.Default) != "" {
		q.Default = ""
	}
	return q
}

// arguments returns the arguments of a command.
func (a *asker) arguments(list []registry.Argument) (args []value, err error) {
	if len(list) > maxInputs {
		return nil, errors.New("it has too many arguments")
	}
	for i, arg := range list {
		named := arg.Type == "named"
		key := arg.ValueHint
		if named {
			key = arg.Name
			if !strings.HasPrefix(arg.Name, "-") || line(arg.Name, 100) != arg.Name {
				return nil, fmt.Errorf("its argument %q has no valid name", line(arg.Name, 60))
			}
			if isFlag(arg) {
				args = append(args, value{text: arg.Name, there: true})
				continue
			}
		}
		values, secret, err := a.values(cmp.Or(key, fmt.Sprintf("argument %d", i+1)), arg.Input, arg.IsRepeated)
		if err != nil {
			return nil, err
		}
		for _, v := range values {
			if named {
				args = append(args, value{text: arg.Name, there: true})
			}
			args = append(args, value{v, true, secret})
		}
	}
	return args, nil
}

// isFlag reports whether a named argument stands alone: nothing says what its value could be.
func isFlag(arg registry.Argument) bool {
	return arg.Value == "" && arg.Default == "" && arg.ValueHint == "" && arg.Format == "" && len(arg.Choices) == 0 && len(arg.Variables) == 0 &&
		!arg.IsSecret && !arg.IsRepeated
}
