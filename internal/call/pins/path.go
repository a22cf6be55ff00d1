package pins

import (
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/orla-project/orla/internal/mcp/rawjson"
	"github.com/orla-project/orla/internal/observe/brief"
)

// maxPath bounds a path that is shown, in bytes.
const maxPath = 1000

// path is the way from a definition down to a value in it. It is written only for what is shown: many values below a
// long name have as many long paths, which have no place in memory.
type path []any // a string for each member, and an int for each element

// String returns the path as people read it, such as inputSchema.enum[1]. It is cut at maxPath.
func (p path) String() string {
	var out strings.Builder
	for _, s := range p {
		if out.Len() > maxPath {
			break
		}
		key, isMember := s.(string)
		if !isMember {
			fmt.Fprintf(&out, "[%d]", s)
			continue
		}
		key = key[:min(len(key), maxPath+1)]
		switch {
		case !plainKey().MatchString(key):
			out.WriteString("[" + string(rawjson.Quote(key)) + "]")
		case out.Len() == 0:
			out.WriteString(key)
		default:
			out.WriteString("." + key)
		}
	}
	return brief.Cut(out.String(), maxPath)
}

var plainKey = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_$-]+$`) })
