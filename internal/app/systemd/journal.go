package systemd

import (
	"encoding/binary"
	"strings"

	"github.com/coreos/go-systemd/v22/journal"
)

// JournalSocket is where journald takes entries in its native protocol.
const JournalSocket = "/run/systemd/journal/socket"

// StderrIsJournal reports whether stderr goes to the journal, as JOURNAL_STREAM
// in the environment says of it.
func StderrIsJournal() bool {
	is, err := journal.StderrIsJournalStream()
	return is && err == nil // an invalid variable does not name a stream
}

// maxField is the longest name that the journal takes.
const maxField = 64

// AppendField appends a field to an entry, in the form of the native protocol
// (systemd.io/JOURNAL_NATIVE_PROTOCOL). The name is made one that the journal
// takes: upper case, with _ for what may not be in it, and never journald's own.
func AppendField(entry []byte, name, value string) []byte {
	for i := range min(len(name), maxField) {
		c := name[i]
		switch {
		case 'a' <= c && c <= 'z':
			c -= 'a' - 'A'
		case 'A' <= c && c <= 'Z', '0' <= c && c <= '9' && i > 0, c == '_' && i > 0:
		case i == 0:
			c = 'X'
		default:
			c = '_'
		}
		entry = append(entry, c)
	}
	if !strings.Contains(value, "\n") {
		entry = append(append(entry, '='), value...)
		return append(entry, '\n')
	}
	entry = binary.LittleEndian.AppendUint64(append(entry, '\n'), uint64(len(value)))
	return append(append(entry, value...), '\n')
}
