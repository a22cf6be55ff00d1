package resource

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/orla-project/orla/internal/file/regularfile"
	"github.com/orla-project/orla/internal/file/yamldoc"
)

// rules are the kinds of governance documents. A call that such a document might forbid must not run; so a
// document that may be one of them and cannot be read denies every call (SPEC-TOOLS 8.3).
var rules = []string{kindPermission, kindRole, kindPolicy}

// ruleWords are parts of these kinds in lower case, by which they are found in the singular and in the plural.
var ruleWords = []string{"toolpermission", "agentrole", "agentpolic"}

// ruleKeys are keys that only governance documents have.
var ruleKeys = []string{"operation_rules", "required_permissions", "blocked_tools"}

// suspicious are words that show that a file may hold resources. Text that is tagged as binary may be any word;
// see isSuspicious for other spellings of the tag.
var suspicious = slices.Concat([]string{"orloj", "!binary", ":binary"}, ruleWords, ruleKeys)

// tagged matches a tag that is written with an escape or a %TAG directive.
var tagged = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?m)^\x{feff}?%TAG\s|!\S*%`) })

// isSuspicious reports whether a file with that text may hold resources, as its words say.
func isSuspicious(text []byte) bool {
	return holdsWord(text, suspicious) || bytes.IndexByte(text, '%') >= 0 && tagged().Match(text)
}

// otherKinds are the kinds of resources that Orla knows of and has no use for.
// None of them forbids anything.
var otherKinds = []string{"Agent", "AgentSystem", "EvalDataset", "EvalRun", "Memory", "ModelEndpoint", "Task", "TaskSchedule", "TaskWebhook", "Worker"}

var (
	// ruleWord finds the name of one of the rules anywhere.
	ruleWord = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?i)` + strings.Join(ruleWords, "|")) })
	// rulePlural is one of the rules, or a list of them, without its case, dashes and blanks.
	rulePlural = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(?:toolpermissions?|agentroles?|agentpolic(?:y|ys|ies))(?:list)?$`)
	})
	// anyKind finds the first kind of a document that cannot be parsed.
	anyKind = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\bkind["']?\s*:\s*["']?([A-Za-z]+)`) })
)

// squashed takes the dashes and blanks out of a kind.
var squashed = strings.NewReplacer("_", "", "-", "", " ", "")

// ruleKind returns the kind of governance documents that a text names, in any case, in the singular or the plural;
// "" for none.
func ruleKind(kind string) string {
	word := squashed.Replace(strings.ToLower(strings.TrimSpace(visible(kind))))
	if !rulePlural().MatchString(word) {
		return ""
	}
	const differs = len("agentp")
	return rules[slices.IndexFunc(rules, func(rule string) bool { return strings.EqualFold(rule[:differs], word[:differs]) })]
}

// nearRule returns the kind of governance documents that a text is probably meant to name; "" for none.
func nearRule(kind string) string {
	if rule := ruleKind(kind); rule != "" {
		return rule
	}
	near := yamldoc.Nearest(strings.ToLower(visible(kind)), []string{"toolpermission", "agentrole", "agentpolicy"})
	return ruleKind(near)
}

// isKind reports whether a key is kind, as somebody may write it.
func isKind(key string) bool { return strings.EqualFold(strings.TrimSpace(visible(key)), "kind") }

// says has what a document says of itself at its top level. Deeper levels are data: whoever can write there must
// not be able to deny calls.
type says struct {
	version, kind       string // "" where it is not a text
	hasVersion, hasKind bool
	spec                bool
	rule                string // the governance documents that a key kind names, in any case
	ruleKeys            bool   // one of them is there, or in spec
	items               bool   // one of items may be a governance document
}

// add takes a key of the top level. Of two that are the same the first counts.
func (s *says) add(key, value string) {
	switch {
	case key == "apiVersion" && !s.hasVersion:
		s.version, s.hasVersion = value, true
	case key == "kind" && !s.hasKind:
		s.kind, s.hasKind = value, true
	case key == "spec":
		s.spec = true
	case slices.Contains(ruleKeys, key):
		s.ruleKeys = true
	}
	if s.rule == "" && isKind(key) {
		s.rule = ruleKind(value)
	}
}

// isList reports whether the items of a document of that kind are documents.
func isList(kind string) bool { return strings.HasSuffix(strings.ToLower(visible(kind)), "list") }

// mayRule reports whether the document is, or may be, a governance document.
// mentions says that one is mentioned in it.
func (s *says) mayRule(mentions func() bool) bool {
	ours := isOurs(s.version)
	if slices.Contains(servedKinds, s.kind) {
		return s.rule != "" && s.kind == kindSecret && s.version == "v1" // which is not decoded
	}
	switch {
	case s.rule != "", s.items && isList(s.kind):
		return true
	case s.kind == "":
		return s.ruleKeys || ours && (s.spec || mentions())
	case !ours && s.hasVersion: // somebody else's
		return false
	case nearRule(s.kind) != "":
		return true
	}
	return ours && !isHarmless(s.kind)
}

// isOurs reports whether an apiVersion is of Orloj, as somebody may write it.
func isOurs(version string) bool { return strings.Contains(strings.ToLower(visible(version)), "orloj") }

// saysOf reads what a document says of itself.
func saysOf(doc *yamldoc.Doc, mentions func() bool) (s says) {
	for _, m := range doc.Members() {
		s.add(m.Key, m.Value)
	}
	s.ruleKeys = s.ruleKeys || slices.ContainsFunc(ruleKeys, func(key string) bool { return doc.Has("spec." + key) })
	if isList(s.kind) {
		s.items = slices.ContainsFunc(doc.Items("items"), func(item *yamldoc.Doc) bool {
			s := saysOf(item, mentions)
			return s.mayRule(mentions)
		})
	}
	return s
}

// ruleIn finds a key kind, in any case, that names governance documents: in a document, or in the items of a list
// of documents.
func ruleIn(doc *yamldoc.Doc) (kind string, line, column int) {
	list := false
	for _, m := range doc.Members() {
		if !isKind(m.Key) {
			continue
		}
		if kind := ruleKind(m.Value); kind != "" {
			return kind, m.Line, m.Column
		}
		list = list || isList(m.Value)
	}
	if !list {
		return "", 0, 0
	}
	for _, item := range doc.Items("items") {
		if kind, line, column = ruleIn(item); kind != "" {
			break
		}
	}
	return kind, line, column
}

// mayRule reports whether a document is, or may be, a governance document.
func mayRule(doc *yamldoc.Doc, data []byte) bool {
	mentions := func() bool { return holdsWord(data, ruleWords) }
	if doc.Err() == nil {
		s := saysOf(doc, mentions)
		return s.mayRule(mentions)
	}
	if rule, known := ruleInJSON(data); known {
		return rule
	}
	kind := cmp.Or(firstGroup(kindLine(), data), firstGroup(anyKind(), data))
	return mentions() || isOurs(firstGroup(versionLine(), data)) && !isHarmless(kind)
}

// ruleInJSON searches JSON: one or more texts, the last of which may be cut off. It reports whether one of them
// may be a governance document. known is false if data is not JSON.
func ruleInJSON(data []byte) (rule, known bool) {
	j := jsonReader{ByteScanner: bytes.NewReader(bytes.TrimPrefix(data, byteOrderMark))}
	err := j.read()
	return j.rule, err == nil || errors.Is(err, io.EOF)
}

// isHarmless reports whether a kind of Orloj, or a misspelling of one, is certainly not a kind of governance
// documents.
func isHarmless(kind string) bool {
	return slices.Contains(otherKinds, kind) || nearRule(kind) == "" && yamldoc.Nearest(kind, servedKinds) != ""
}

// readRule adds the fault of a document that is, or may be, a governance document.
func (d *Declaration) readRule(kind, version string, data []byte) {
	const denied = "and cannot be read as one: every call is denied while it is there"
	d.Rule = true
	rule, line, column := ruleIn(d.Doc)
	at := ruleWord().FindIndex(data)
	switch near := nearRule(kind); {
	case rule != "" && ruleKind(kind) == rule:
		d.checkVersion(version)
		d.Doc.Faultf("kind", "%s is a governance document %s", rule, denied)
	case rule != "":
		d.Doc.FaultAt(line, column, "%s is a governance document %s", rule, denied)
	case near != "" && d.Doc.Has("kind"):
		d.Doc.Faultf("kind", "may stand for %q, a governance document, %s; write the kind as it is", near, denied)
	case at != nil:
		begin := 1 + bytes.LastIndexByte(data[:at[0]], '\n')
		d.Doc.FaultAt(1+bytes.Count(data[:begin], []byte("\n")), 1+at[0]-begin,
			"%s stands here, so that this may be a governance document, %s", data[at[0]:at[1]], denied)
	default:
		d.Doc.FaultAt(1, 1, "this may be a governance document, as its kind cannot be told or is not known, %s", denied)
	}
}

// warnsOfList warns about a document that is a list, if one of its items would be a governance document by itself.
// It is not one here: tools may keep lists of texts that their callers write, and callers must not be able to deny
// calls.
func (d *Declaration) warnsOfList() bool {
	for _, item := range d.Doc.Items("") {
		version, _ := item.Text("apiVersion")
		kind, _ := item.Text("kind")
		if isOurs(version) && nearRule(kind) != "" {
			d.listed = true
			d.Warnings = append(d.Warnings, item.At("", "is not read as a rule, and forbids nothing, since it is an item of a list: write each rule as a document of its own, with --- between two of them"))
			return true
		}
	}
	return false
}

// mostOfHead is how many bytes LooksLikeRules reads.
const mostOfHead = 4 << 10

// LooksLikeRules reports whether a file, of any name, begins with a governance document.
func LooksLikeRules(file string) bool {
	head, _, err := regularfile.Head(file, mostOfHead)
	return err == nil && versionLine().Match(head) && nearRule(firstGroup(kindLine(), head)) != ""
}

// HasExtension reports whether a file of that name may hold resources.
func HasExtension(name string) bool {
	return slices.Contains(resourceExtensions, strings.ToLower(filepath.Ext(name)))
}
