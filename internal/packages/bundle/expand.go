package bundle

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
)

var templated = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\$\{([^}]*)\}`) })

// mostReferences bounds how often a bundle may name what is asked for: an answer that it has itself is put in each time.
const mostReferences = 1000

// expand replaces ${…} in a text of mcp_config. There are no words if a value was not given, and several for a value that
// has several and is all of the text. In a variable a secret stays a part with its key as text.
func (i *importer) expand(from string, inVariable bool) ([]word, error) {
	switch {
	case from == "" && inVariable:
		return []word{text("")}, nil
	case from == "":
		return nil, nil
	}
	if strings.ContainsRune(from, 0) || len(from) > 16<<10 {
		return nil, errors.New("the bundle has an argument or a variable that is not valid")
	}
	var w word
	at := 0
	for _, m := range templated().FindAllStringSubmatchIndex(from, -1) {
		if m[0] > at {
			w = append(w, part{text: from[at:m[0]]})
		}
		at = m[1]
		name := from[m[2]:m[3]]
		key, isConfig := strings.CutPrefix(name, "user_config.")
		if !isConfig {
			p, err := known(name)
			if err != nil {
				return nil, err
			}
			w = append(w, p)
			continue
		}
		config, ok := i.manifest.UserConfig[key]
		if !ok {
			return nil, fmt.Errorf("the bundle uses %q, which its user_config does not have", line(name, 60))
		}
		if i.references++; i.references > mostReferences {
			return nil, fmt.Errorf("the bundle refers to its user_config more than %d times", mostReferences)
		}
		q, read := i.read[key]
		if !read {
			var err error
			if q, err = config.question(key); err != nil {
				return nil, err
			}
			i.read[key] = q
		}
		values := i.asker.ask(q)
		switch {
		case len(values) == 0:
			return nil, nil
		case q.Secret && inVariable:
			w = append(w, part{text: name, env: key})
		case q.Secret:
			w = append(w, i.secretArgument(key, values[0]))
		case len(values) > 1 && m[0] == 0 && m[1] == len(from):
			var all []word
			for _, v := range values {
				all = append(all, text(v))
			}
			return all, nil
		default:
			w = append(w, part{text: strings.Join(values, ",")})
		}
	}
	if at < len(from) {
		w = append(w, part{text: from[at:]})
	}
	return []word{w}, nil
}

// secretArgument makes a variable of a secret that is an argument.
func (i *importer) secretArgument(key, value string) part {
	name := "ORLA_SECRET_" + strings.ToUpper(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, key))
	if _, there := i.made.Secrets[name]; !there {
		i.made.Secrets[name] = value
		i.secrets = append(i.secrets, name)
		i.made.Notes = append(i.made.Notes, "it takes a secret as an argument")
	}
	return part{env: name}
}

// known returns what ${name} stands for.
func known(name string) (part, error) {
	folders := map[string]string{"DESKTOP": "Desktop", "DOCUMENTS": "Documents", "DOWNLOADS": "Downloads"}
	switch name {
	case "__dirname":
		return part{dir: true}, nil
	case "/", "pathSeparator":
		return part{text: "/"}, nil
	case "HOME", "DESKTOP", "DOCUMENTS", "DOWNLOADS":
		home, err := os.UserHomeDir()
		if err != nil {
			return part{}, err
		}
		return part{text: filepath.Join(home, folders[name])}, nil
	}
	return part{}, fmt.Errorf("the bundle uses ${%s}, which Orla does not know", line(name, 60))
}

// question returns the question of a key of user_config.
func (c userConfig) question(key string) (Question, error) {
	q := Question{
		Key: line(key, 150), Title: line(c.Title, 200), Description: line(c.Description, 500), Type: cmp.Or(c.Type, String), Required: c.Required,
		Secret: c.Sensitive, Multiple: c.Multiple, min: c.Min, max: c.Max,
	}
	if !slices.Contains([]string{String, Number, Boolean, File, Directory}, q.Type) {
		return q, fmt.Errorf("the bundle asks for %q of the type %q, which Orla does not know", line(key, 60), line(c.Type, 30))
	}
	var list []any
	if len(c.Default) > 0 && json.Unmarshal(c.Default, &list) != nil {
		list = make([]any, 1)
		if err := json.Unmarshal(c.Default, &list[0]); err != nil {
			return q, err
		}
	}
	var values []string
	for _, v := range list {
		if v == nil {
			continue
		}
		text := fmt.Sprint(v)
		if n, ok := v.(float64); ok {
			raw, err := json.Marshal(n)
			if err != nil {
				return q, err
			}
			text = string(raw)
		}
		text = templated().ReplaceAllStringFunc(text, func(whole string) string {
			p, err := known(whole[2 : len(whole)-1])
			if err != nil || p.dir {
				return whole
			}
			return p.text
		})
		if q.wrong(text) == "" {
			values = append(values, text)
		}
	}
	if q.Multiple || len(values) == 1 {
		q.Default = strings.Join(values, "\n")
	}
	return q, nil
}
