// The packages that are installed, as orla.lock has them.

import { get, serial } from './api.js';
import { h, replace, empty, failed, plural, command, shape, heading, pairs } from './dom.js';

export function packagesView(app) {
  const control = new AbortController();
  const totals = h('p', { class: 'totals' }), body = h('div', { class: 'cards' });
  const el = h('section', { class: 'view' }, heading('Packages', totals), body);

  const load = serial(async () => {
    try {
      const { packages, locks } = await get('/v1/packages', control.signal);
      draw(packages, locks);
    } catch (error) { failed(error); }
  });

  function draw(list, locks) {
    const faults = locks.filter((l) => l.error).map((l) => h('div', { class: 'banner bad' }, shape('crashed'), h('p', {}, l.error)));
    replace(totals, plural(new Set(list.map((p) => p.name)).size, 'package'));
    replace(body, faults, list.map(card), !list.length && !faults.length && empty('No package is installed', 'A package brings a tool of somebody else, with the permissions that you grant. It would be recorded in ' + locks.map((l) => l.file).join(' or ') + '.', command('orla install NAME')));
  }

  function card(p) {
    const tool = app.tools.get(p.name);
    const facts = [['Source', [p.kind, p.source, p.registry && 'named by ' + p.registry].filter(Boolean).join(' · ')], p.tag && ['Tag', p.tag + (p.commit ? ', commit ' + p.commit.slice(0, 12) : '')], ['Signed by', p.signer || (p.unsigned ? 'nobody; that was accepted' : 'nobody')],
      ['Permissions', p.permissions.length ? h('ul', { class: 'args' }, p.permissions.map((one) => h('li', {}, h('code', {}, one), p.unenforced?.includes(one) && h('span', { class: 'bad' }, 'not enforced')))) : 'none'], ['Digest', h('code', {}, p.digest)], ['Recorded in', p.lock]].filter(Boolean);
    return h('article', { class: 'item' + (p.serves ? '' : ' past') }, h('h2', {}, h('span', {}, p.name), h('small', { class: 'dim' }, p.version),
      h('span', { class: 'badge ' + (p.serves ? 'ready' : 'stopped') }, shape(p.serves ? 'ready' : 'stopped'), h('span', {}, p.serves ? 'Serves' : 'Installed')), p.serves && tool && h('a', { href: '#/tool/' + encodeURIComponent(p.name) }, 'Its state')),
    pairs(facts), !p.serves && command(`orla use ${p.name}@${p.version}`));
  }

  load();
  return { el, title: 'Packages', params: { lines: 0, event: ['reload'] }, lines: load, live(on) { if (on) load(); }, leave: () => control.abort() };
}
