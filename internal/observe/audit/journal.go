package audit

import (
	"bytes"

	"github.com/orla-project/orla/internal/app/systemd"
)

// Journal as the path of an audit log means the systemd journal.
const Journal = "journal"

// Identifier is the SYSLOG_IDENTIFIER of the lines in the journal.
const Identifier = "orla-audit"

// VerifyJournal is the command that checks the lines in the journal. Every user may write there by this identifier, so it takes the
// lines of Orla's user alone.
const VerifyJournal = "journalctl -t " + Identifier + ` _UID="$(id -u orla)" -o cat | orla audit verify -`

// journal writes lines to the journal, an entry each.
type journal struct{ *systemd.Journal }

func (j journal) write(lines []byte) (n int, err error) {
	for line := range bytes.Lines(lines) {
		entry := systemd.AppendField(nil, "MESSAGE", string(bytes.TrimSuffix(line, []byte("\n"))))
		entry = systemd.AppendField(entry, "PRIORITY", "6")
		entry = systemd.AppendField(entry, "SYSLOG_IDENTIFIER", Identifier)
		if _, err := j.Write(entry); err != nil {
			return n, err
		}
		n += len(line)
	}
	return n, nil
}

func (journal) sync() error  { return nil } // journald syncs by itself
func (journal) close() error { return nil }
