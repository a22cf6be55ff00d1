package pins

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/orla-project/orla/internal/observe/brief"
)

// Finding is something in a definition that an operator should look at. It is advice: nothing is refused for it, and
// a definition without findings may be malicious.
type Finding struct {
	Path string // in the definition
	Kind FindingKind
	Text string // for people
}

// FindingKind says what was found.
type FindingKind string

// The kinds of findings.
const (
	Hidden    FindingKind = "hidden_unicode"
	Sensitive FindingKind = "sensitive_path"
	Shadow    FindingKind = "shadowed_name"
)

// maxFindings bounds the findings that are shown of one definition.
const maxFindings = 20

// findings looks at each text of a definition, the names of members too. It returns most findings at most, and says
// if there are more.
func findings(definition []byte, most int) []Finding {
	l := &looker{most: most}
	l.look(decoded(json.RawMessage(definition)))
	if len(l.all) > most {
		l.all = append(l.all[:most], Finding{l.all[most].Path, l.all[most].Kind, "there are more that are not shown"})
	}
	return l.all
}

// looker collects findings, one more than most at most.
type looker struct {
	at   path // what is looked at
	all  []Finding
	most int
}

func (l *looker) look(value any) {
	if len(l.all) > l.most {
		return
	}
	switch value := value.(type) {
	case string:
		l.text(value)
	case []any:
		for n, element := range value {
			l.at = append(l.at, n)
			l.look(element)
			l.at = l.at[:len(l.at)-1]
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			l.at = append(l.at, key)
			l.text(key)
			l.look(value[key])
			l.at = l.at[:len(l.at)-1]
		}
	}
}

// text looks at one text.
func (l *looker) text(text string) {
	if !isPlain(text) {
		for _, c := range text {
			if what := hidden(c); what != "" {
				l.add(Hidden, fmt.Sprintf("it has %s, which people do not see: U+%04X", what, c))
				break
			}
		}
	}
	if found := sensitive().FindString(text); found != "" {
		l.add(Sensitive, "it names a file that may hold secrets: "+brief.Cut(strings.TrimSpace(found), maxShown))
	}
}

func (l *looker) add(kind FindingKind, text string) {
	if len(l.all) <= l.most {
		l.all = append(l.all, Finding{l.at.String(), kind, text})
	}
}

func isPlain(text string) bool {
	for n := range len(text) {
		if b := text[n]; b >= 0x80 || b < ' ' && b != '\n' && b != '\t' && b != '\r' || b == 0x7f {
			return false
		}
	}
	return true
}

// hidden says what a character is that people do not see; "" for all others.
func hidden(c rune) string {
	switch {
	case c >= 0xE0000 && c <= 0xE007F:
		return "a tag character"
	case c >= 0x202A && c <= 0x202E, c >= 0x2066 && c <= 0x2069, c == 0x200E, c == 0x200F, c == 0x061C:
		return "a character that turns the direction of text"
	case c >= 0xE0100 && c <= 0xE01EF:
		return "a variation selector"
	case c == '\n', c == '\t', c == '\r':
		return ""
	case unicode.IsControl(c):
		return "a control character"
	case unicode.Is(unicode.Cf, c), unicode.Is(unicode.Other_Default_Ignorable_Code_Point, c), c >= 0x180B && c <= 0x180F, unicode.Is(unicode.Co, c):
		return "an invisible character"
	}
	return ""
}

// sensitive matches names of files that a description of a tool has no reason to name.
var sensitive = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)(\.ssh\b|\bid_(rsa|dsa|ecdsa|ed25519)\b|\.aws\b|\.gnupg\b|\.kube\b|\.netrc\b|\.npmrc\b|\.pypirc\b|\.git-credentials\b|\.docker/config|` +
		`(^|[\s/'"` + "`" + `(=])\.env\b|/etc/(passwd|shadow|sudoers)\b|/proc/(self|\d+)/environ|\.config/gcloud|\.cursor/|\bmcp\.json\b|claude_desktop_config|\.claude\b|` +
		`\.bash_history\b|\.zsh_history\b|\bcredentials\.json\b|login\.keychain|\bwallet\.dat\b|\.orla\b|\borla\.yaml\b)`)
})
