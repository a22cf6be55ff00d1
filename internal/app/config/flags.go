package config

import (
	"os"
	"reflect"
	"strings"

	"github.com/spf13/pflag"

	"github.com/orla-project/orla/internal/app/systemd"
	"github.com/orla-project/orla/internal/app/terminal"
)

// Flags are the flags that set keys of the configuration.
type Flags struct {
	config string
}

// flagKey is a key that has a flag.
type flagKey struct {
	key       string
	kind      string // what the flag's value is, as help says; "" for a switch, which needs no value
	brief     string
	isolation bool // help shows it in the group of isolation
}

// flag returns the name of the flag.
func (k flagKey) flag() string { return strings.ReplaceAll(k.key, "_", "-") }

// flagKeys returns the keys that have a flag.
func flagKeys() []flagKey {
	var list []flagKey
	for _, field := range settings(reflect.TypeFor[Config]()) {
		if kind, has := field.Tag.Lookup("flag"); has {
			embedded := len(field.Index) > 1 // in IsolationConfig
			list = append(list, flagKey{jsonKey(field), strings.TrimPrefix(kind, "-"), field.Tag.Get("brief"), embedded})
		}
	}
	return list
}

// Add adds the flags to a set.
func (f *Flags) Add(set *pflag.FlagSet) {
	set.StringVarP(&f.config, "config", "c", "", "configuration `FILE` (default ./orla.yaml, then ~/.orla/config.yaml)")
	for _, k := range flagKeys() {
		if k.kind == "" {
			set.Bool(k.flag(), false, k.brief)
		} else {
			set.Var(&textFlag{kind: k.kind}, k.flag(), k.brief)
		}
		if k.isolation {
			set.Lookup(k.flag()).Annotations = map[string][]string{GroupAnnotation: {IsolationGroup}}
		}
	}
}

// textFlag is a flag whose value is the text of a key.
type textFlag struct{ kind, text string }

func (t *textFlag) String() string { return t.text }

func (t *textFlag) Set(text string) error { t.text = text; return nil }

func (t *textFlag) Type() string { return t.kind }

// Loader returns a Loader with the flags that a command was given.
func (f *Flags) Loader(set *pflag.FlagSet) *Loader {
	l := &Loader{Path: f.config, Environ: os.Environ(), journal: systemd.StderrIsJournal(), terminal: terminal.IsTerminal(os.Stderr)}
	l.Home, _ = os.UserHomeDir() // "" if there is none
	l.Path = l.expandHome(l.Path)
	for _, k := range flagKeys() {
		if flag := set.Lookup(k.flag()); flag.Changed {
			l.Flags = append(l.Flags, Setting{k.key, flag.Value.String(), flag.Name})
		}
	}
	return l
}

// LoadTools is like Load, for a command that reads the tools: a tools folder that was set has to exist.
func (f *Flags) LoadTools(set *pflag.FlagSet) (*Loaded, *Loader, error) {
	cfg, l, err := f.Load(set)
	if err == nil {
		if err = cfg.CheckToolsDir(); err != nil {
			err = NotLoaded(err)
		}
	}
	return cfg, l, err
}

// Load loads the configuration for a command that does not serve.
func (f *Flags) Load(set *pflag.FlagSet) (*Loaded, *Loader, error) {
	l := f.Loader(set)
	cfg, err := l.Load()
	if err != nil {
		return nil, nil, NotLoaded(err)
	}
	return cfg, l, nil
}

// GroupAnnotation is the annotation of flags that help shows apart from the others, and
// IsolationGroup is one such group.
const (
	GroupAnnotation = "orla_group"
	IsolationGroup  = "How tools are isolated (docs/ISOLATION.md):"
)
