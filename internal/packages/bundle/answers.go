package bundle

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// The kinds of answers.
const (
	String    = "string"
	Number    = "number"
	Boolean   = "boolean"
	File      = "file"
	Directory = "directory"
)

// Question is what a server wants to know before it is started.
type Question struct {
	Key         string
	Title       string // for people, and strangers wrote it
	Description string
	Type        string
	Required    bool
	Secret      bool
	Multiple    bool // the answer may have several lines, each a value
	Default     string
	Choices     []string

	min, max *float64
}

// UnansweredError says that questions have no answer that are required, or that answers are not of their type.
type UnansweredError struct {
	Questions []Question
	wrong     []string
}

// Error names the questions, and never an answer.
func (e *UnansweredError) Error() string {
	texts := slices.Clone(e.wrong)
	for _, q := range e.Questions {
		texts = append(texts, fmt.Sprintf("%q needs a value (%s)", q.Key, q.Type))
	}
	return "the server wants to be configured: " + strings.Join(texts, "; ")
}

// Kept is an answer to a question about a secret whose value is known elsewhere: nobody looks at it.
const Kept = "\x00kept"

// asker collects questions and their answers.
type asker struct {
	answers   map[string]string
	questions []Question
	missing   UnansweredError
	paths     []string // answers that are files or folders
}

// err returns what is missing.
func (a *asker) err() error {
	if len(a.missing.Questions)+len(a.missing.wrong) > 0 {
		return &a.missing
	}
	return nil
}

// ask returns the values of an answer; there are none if the question was not answered.
func (a *asker) ask(q Question) []string {
	q.Title, q.Description = line(q.Title, 200), line(q.Description, 500)
	if q.Secret || len(q.Default) > 4096 {
		q.Default = "" // whatever the default of a secret is, it is not one
	}
	if !slices.ContainsFunc(a.questions, func(other Question) bool { return other.Key == q.Key }) {
		a.questions = append(a.questions, q)
	}
	answer := cmp.Or(a.answers[q.Key], q.Default)
	if answer == "" {
		if q.Required {
			a.missing.Questions = append(a.missing.Questions, q)
		}
		return nil
	}
	values := []string{answer}
	if q.Secret && answer == Kept {
		return values
	}
	if q.Multiple {
		values = slices.DeleteFunc(strings.Split(answer, "\n"), func(v string) bool { return v == "" })
	}
	for _, v := range values {
		if why := q.wrong(v); why != "" {
			a.missing.wrong = append(a.missing.wrong, fmt.Sprintf("%q %s", q.Key, why))
			return nil
		}
		if q.Type == File || q.Type == Directory {
			a.paths = append(a.paths, v)
		}
	}
	return values
}

// wrong returns why a value cannot be the answer, or "".
func (q Question) wrong(value string) string {
	switch {
	case strings.ContainsAny(value, "\x00\n\r"):
		return "has a line break or a NUL"
	case len(q.Choices) > 0 && !slices.Contains(q.Choices, value):
		return "must be one of " + strings.Join(q.Choices, ", ")
	}
	switch q.Type {
	case Boolean:
		if value != "true" && value != "false" {
			return "must be true or false"
		}
	case Number:
		n, err := strconv.ParseFloat(value, 64)
		switch {
		case err != nil:
			return "must be a number"
		case q.min != nil && n < *q.min:
			return fmt.Sprintf("must be at least %v", *q.min)
		case q.max != nil && n > *q.max:
			return fmt.Sprintf("must be at most %v", *q.max)
		}
	case File, Directory:
		if !strings.HasPrefix(value, "/") {
			return "must be an absolute path"
		}
	}
	return ""
}

// part is a piece of an argument or of a variable: a text, the folder of the package, or a variable of the environment.
type part struct {
	text string
	dir  bool
	env  string
}

// word is an argument or the value of a variable.
type word []part

func text(s string) word { return word{{text: s}} }

// variable is a variable of the environment.
type variable struct {
	name  string
	value word
}

// plain returns a word that is a text alone.
func (w word) plain() (string, bool) {
	var all strings.Builder
	for _, p := range w {
		if p.dir || p.env != "" {
			return "", false
		}
		all.WriteString(p.text)
	}
	return all.String(), true
}

// below returns the path of a word that is a file in the package.
func (w word) below() (string, bool) {
	if len(w) == 0 || !w[0].dir {
		return "", false
	}
	rest, ok := w[1:].plain()
	return strings.TrimPrefix(rest, "/"), ok && strings.HasPrefix(rest, "/")
}

var variableName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`) })

// forbidden are variables with which a program could be made to run something else.
var forbidden = []string{"LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "DYLD_INSERT_LIBRARIES", "BASH_ENV", "ENV", "PYTHONSTARTUP", "PYTHONHOME", "NODE_PATH", "NODE_OPTIONS"}

// checkVariable returns why a server may not set a variable. Orla sets some itself: those are ignored.
func checkVariable(name string) (ignore bool, err error) {
	if !variableName().MatchString(name) || slices.Contains(forbidden, name) || strings.HasPrefix(name, "ORLA_") {
		return false, fmt.Errorf("it sets the variable %q, which is not allowed", line(name, 60))
	}
	return name == "HOME" || name == "PATH" || name == "TMPDIR", nil
}
