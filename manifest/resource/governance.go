package resource

import (
	"bytes"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/orla-project/orla/internal/yamldoc"
)

// rules are the kinds of governance documents (SPEC-TOOLS 8.3). This version does
// not enforce them. A call that such a document might forbid must not run, so
// every document that is, or may be, of one of these kinds has a Problem with
// Denies.
var rules = []string{"ToolPermission", "AgentRole", "AgentPolicy"}

// ruleWords are the same in lower case. A word of one that has the end of its plural
// is found by them as well.
var ruleWords = []string{"toolpermission", "agentrole", "agentpolic"}

// ruleKeys are keys that only governance documents have.
var ruleKeys = []string{"operation_rules", "required_permissions", "blocked_tools"}

// suspicious are the words by which a file that may hold resources is found. What
// is tagged as binary may be any word.
var suspicious = slices.Concat([]string{"orloj", "!binary", ":binary"}, ruleWords, ruleKeys)

// otherKinds are the kinds of resources that Orla knows of and has no use for.
// None of them forbids anything.
var otherKinds = []string{"Agent", "AgentSystem", "EvalDataset", "EvalRun", "Memory", "ModelEndpoint", "Task", "TaskSchedule", "TaskWebhook", "Worker"}

var (
	// ruleWord finds the name of one of the rules anywhere.
	ruleWord = regexp.MustCompile(`(?i)` + strings.Join(ruleWords, "|"))
	// rulePlural is one of the rules without its case, dashes and blanks.
	rulePlural = regexp.MustCompile(`^(?:toolpermissions?|agentroles?|agentpolic(?:y|ys|ies))$`)
	// textRule finds a governance document in a text: a key kind that has a line of its own, or stands in braces.
	textRule = regexp.MustCompile(`(?mi)^[ \t-]*["']?kind["']?[ \t]*:[ \t]*["']?(?:toolpermission|agentrole|agentpolicy)["']?[ \t\r]*(?:#.*)?$|` +
		`^\s*[\[{](?s:.*)["']?kind["']?\s*:\s*["']?(?:toolpermission|agentrole|agentpolicy)\b`)
	// anyKind finds the first kind of a document that cannot be parsed.
	anyKind = regexp.MustCompile(`\bkind["']?\s*:\s*["']?([A-Za-z]+)`)
)

// MentionsRule reports whether a text has the name of a governance document in it.
func MentionsRule(data []byte) bool { return holdsWord(data, ruleWords) }

// squashed takes the dashes and blanks out of a kind.
var squashed = strings.NewReplacer("_", "", "-", "", " ", "")

// ruleKind is the kind of governance documents that a kind is, in another case or
// in the plural; "" for none.
func ruleKind(kind string) string {
	word := squashed.Replace(strings.ToLower(strings.TrimSpace(visible(kind))))
	if !rulePlural.MatchString(word) {
		return ""
	}
	const differs = len("agentp")
	return rules[slices.IndexFunc(rules, func(rule string) bool { return strings.EqualFold(rule[:differs], word[:differs]) })]
}

// nearRule is the kind of governance documents that a kind is probably meant to be;
// "" for none.
func nearRule(kind string) string {
	if rule := ruleKind(kind); rule != "" {
		return rule
	}
	near := yamldoc.Nearest(strings.ToLower(visible(kind)), []string{"toolpermission", "agentrole", "agentpolicy"})
	return ruleKind(near)
}

// isKind reports whether a key is kind, as somebody may write it.
func isKind(key string) bool { return strings.EqualFold(strings.TrimSpace(visible(key)), "kind") }

// ruleIn finds a key kind of a document, at any depth and in any case, whose
// value is such a kind: a list may hold governance documents.
func ruleIn(doc *yamldoc.Doc) (kind string, line, column int) {
	line, column, _ = doc.Find(func(key, value string) bool {
		if isKind(key) {
			kind = ruleKind(value)
		}
		return kind != ""
	})
	return kind, line, column
}

// ruleInText finds a text of a document that is, or has in it, a governance
// document, as a ConfigMap may.
func ruleInText(doc *yamldoc.Doc) (line, column int, found bool) {
	return doc.FindText(func(text string) bool {
		return holdsWord([]byte(text), ruleWords) && textRule.MatchString(visible(text))
	})
}

// mayRule reports whether a document is, or may be, a governance document. Its
// version and its kind are "" where they cannot be read.
func mayRule(doc *yamldoc.Doc, version, kind string, data []byte) bool {
	ours := strings.Contains(strings.ToLower(visible(version)), "orloj")
	mentioned := holdsWord(data, ruleWords)
	if doc.Err() != nil {
		if kind == "" {
			kind = firstGroup(anyKind, data)
		}
		return mentioned || ours && !isHarmless(kind)
	}
	rule, _, _ := ruleIn(doc)
	if slices.Contains(servedKinds, kind) {
		return rule != "" && kind == kindSecret && version == "v1" // which is not decoded
	}
	if mentioned && rule == "" {
		_, _, mentioned = ruleInText(doc)
	}
	switch {
	case rule != "", mentioned:
		return true
	case kind == "" && slices.ContainsFunc(ruleKeys, func(key string) bool { return doc.Has("spec."+key) || doc.Has(key) }):
		return true
	case kind == "" && doc.Has("kind"): // which is no text
		return holdsWord(data, ruleWords)
	case kind == "":
		return ours && (doc.Has("spec") || holdsWord(data, ruleWords))
	case !ours && doc.Has("apiVersion"): // somebody else's
		return false
	case nearRule(kind) != "":
		return true
	}
	return ours && !isHarmless(kind)
}

// isHarmless reports whether a kind of ours, or what is meant to be one, is not of
// a governance document.
func isHarmless(kind string) bool {
	return slices.Contains(otherKinds, kind) || nearRule(kind) == "" && yamldoc.Nearest(kind, servedKinds) != ""
}

// readRule adds the fault of a document that is, or may be, a governance document.
func (d *Declaration) readRule(kind, version string, data []byte) {
	const denied = "which this version does not enforce: every call is denied while it is there; take it out"
	d.Rule = true
	rule, line, column := ruleIn(d.Doc)
	textLine, textColumn, text := ruleInText(d.Doc)
	at := ruleWord.FindIndex(data)
	switch near := nearRule(kind); {
	case rule != "" && ruleKind(kind) == rule:
		d.checkVersion(version)
		d.Doc.Faultf("kind", "%s is a governance document, %s", rule, denied)
	case rule != "":
		d.Doc.FaultAt(line, column, "%s is a governance document, %s", rule, denied)
	case near != "" && d.Doc.Has("kind"):
		d.Doc.Faultf("kind", "may stand for %q, a governance document, %s", near, denied)
	case text:
		d.Doc.FaultAt(textLine, textColumn, "this text seems to hold a governance document, %s", denied)
	case at != nil:
		begin := 1 + bytes.LastIndexByte(data[:at[0]], '\n')
		d.Doc.FaultAt(1+bytes.Count(data[:begin], []byte("\n")), 1+at[0]-begin,
			"%s stands here, so that this may be a governance document, %s", data[at[0]:at[1]], denied)
	default:
		d.Doc.FaultAt(1, 1, "this may be a governance document, as its kind cannot be told or is not known, %s", denied)
	}
}

// HasExtension reports whether a file of that name may hold resources.
func HasExtension(name string) bool {
	return slices.Contains(resourceExtensions, strings.ToLower(filepath.Ext(name)))
}
