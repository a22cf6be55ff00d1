package browser

import (
	"testing"

	"github.com/chromedp/chromedp"
)

// O1, 8.8: of an audit log in the journal the page says where it is, and what checks it.
func TestO1TheAuditLogInTheJournal(t *testing.T) {
	b := newTab(t)
	o := newOrla(t, folder(t, map[string]string{"hello": "#!/bin/sh\necho hi\n"}), "version: 1\n")
	b.do(chromedp.Navigate(o.run("console", "--no-browser")))
	b.wait(`document.querySelector('nav a')`)
	// There is a journal on few machines on which tests run.
	b.js(`(() => { const f = window.fetch; window.fetch = (at, ...rest) => (/\/v1\/audit(\?|$)/.test(at) ? Promise.resolve(new Response('{"path":"journal","lines":[]}')) : f(at, ...rest)); return 1; })()`)
	b.visit("#/audit")
	b.wait(`document.querySelector('.totals')?.textContent === 'in the journal' && document.querySelector('.command code')?.textContent.startsWith('journalctl -t orla-audit _UID=')`)
	b.fine()
}
