package clientconf

import (
	"net/url"
	"regexp"
	"strings"
	"sync"
)

// Whether a text is secret is a guess, and errs on the side of secrecy: what is
// no secret works as well as one.
var (
	secretName = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?i)token|secret|passw|passphrase|credential|api_?-?key|auth([^o]|ori[sz]|$)|cookie|private|dsn|bearer|` +
			`(^|[_-])(key|keys|pass|pwd|pat|pin|session|sig|signature)([_-]|$)|[a-z]Key$|_KEY`)
	})
	// What services begin their tokens with, a JSON Web Token, and a private key.
	secretValue = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(sk|pk|rk|ghp|gho|ghu|ghs|ghr|github_pat|glpat|xox[a-z]|xapp|npm|pypi|hf|AKIA|ASIA|AIza|ya29|dop_v1|shpat|lin_api|secret|ntn|figd|tvly|fc)[-_.A-Za-z0-9]{8,}` +
			`|^eyJ[A-Za-z0-9_-]{8,}\.|-----BEGIN `)
	})
	assignment = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^-{0,2}([A-Za-z][A-Za-z0-9_.-]*)[=:]\s*(.+)$`) })
	// A user and a password in a URL, of which url.Parse wants some characters escaped.
	userPart = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*://[^\s/@:?#\[]*:[^\s@]+@`) })
	flag     = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^-{1,2}([A-Za-z][A-Za-z0-9_-]*)$`) })
)

// isSecret reports whether what is called name looks like a secret.
func isSecret(name, value string) bool {
	return value != "" && (secretName().MatchString(name) || secretText(value))
}

// secretText reports whether a text looks like a secret whatever it is called,
// or like a URL with one in it.
func secretText(value string) bool {
	switch {
	case secretValue().MatchString(value):
		return true
	case !strings.Contains(value, "://"):
		return false
	case secretQuery(value):
		return true
	}
	u, err := url.Parse(value)
	if err != nil || u.User == nil && u.Fragment != "" { // "s3cret#1" ends where the fragment begins
		return userPart().MatchString(value)
	}
	_, password := u.User.Password()
	return password
}

// secretQuery reports whether a URL has a secret behind its question mark.
func secretQuery(text string) bool {
	_, query, _ := strings.Cut(text, "?")
	for pair := range strings.FieldsFuncSeq(query, func(r rune) bool { return r == '&' || r == ';' }) {
		name, value, _ := strings.Cut(pair, "=")
		if isSecret(unescaped(name), unescaped(value)) || secretValue().MatchString(pair) {
			return true
		}
	}
	return false
}

// unescaped is a part of a query as it is meant, or as it is written.
func unescaped(text string) string {
	if plain, err := url.QueryUnescape(text); err == nil {
		return plain
	}
	return text
}

// secretArg reports whether the last word of a command line looks secret, by
// itself or by the flag before it. What the program replaces itself is none.
func secretArg(line []string) bool {
	arg := line[len(line)-1]
	if m := assignment().FindStringSubmatch(arg); m != nil {
		return !variables().MatchString(m[2]) && (isSecret(m[1], m[2]) && !strings.HasPrefix(m[2], "//") || secretText(m[2]) || secretText(arg))
	}
	if variables().MatchString(arg) {
		return false
	}
	if m := flag().FindStringSubmatch(line[len(line)-2]); m != nil && len(line) > 2 && !strings.HasPrefix(arg, "-") {
		return isSecret(m[1], arg)
	}
	return secretText(arg)
}
