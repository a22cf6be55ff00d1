// The arguments of calls, while an operator has them kept.

import { get, post, path, now } from './api.js';
import { h, set, button, span, failed, toast } from './dom.js';

export const keptOf = (app, tool) => app.status?.arguments_kept?.find((k) => k.tool === tool);
const left = (k) => span(Date.parse(k.until) - now()) + ' more';

// keep asks for the arguments of a tool, or has them forgotten.
async function keep(tool, on) {
  try {
    await post(path(['tools', tool, 'arguments']), { keep: on });
    toast(on ? `Arguments of ${tool} are kept for ten minutes.` : `Arguments of ${tool} are forgotten.`);
  } catch (error) { failed(error); }
}

// keepSwitch makes a switch for one tool. draw is called when the status or the time has changed.
export function keepSwitch(app, tool) {
  const time = h('span', { class: 'dim' });
  const chip = h('button', { type: 'button', class: 'chip', 'aria-label': 'Keep arguments of ' + tool, title: 'Keeps the arguments of calls in memory for ten minutes', onclick: () => keep(tool, !keptOf(app, tool)) }, 'Keep arguments');
  const el = h('span', { class: 'keeps' }, chip, time);
  const draw = () => {
    const k = keptOf(app, tool);
    el.hidden = !app.operates;
    chip.setAttribute('aria-pressed', String(Boolean(k)));
    set(time, k ? left(k) : '');
  };
  draw();
  return { el, draw };
}

// keptBanner says of which tools arguments are kept, among those that are meant.
export function keptBanner(app, meant = () => true) {
  const list = h('div', { class: 'keeping' });
  let drawn = '';
  const draw = () => {
    const all = (app.status?.arguments_kept || []).filter((k) => meant(k.tool)), key = JSON.stringify([all, app.operates]);
    if (key !== drawn) {
      drawn = key;
      list.replaceChildren(...all.map((k) => h('div', { class: 'banner' }, h('p', {}, `Arguments of ${k.tool} are kept`, h('span', { class: 'dim' })), app.operates && button('', 'Forget them', () => keep(k.tool, false), { class: 'quiet', 'aria-label': 'Forget them: arguments of ' + k.tool }))));
    }
    all.forEach((k, i) => set(list.children[i].querySelector('.dim'), `for ${left(k)}, asked for by ${k.by}`));
  };
  draw();
  return { el: list, draw };
}

// Kept has the arguments of calls, by their ids. Orla keeps 1 MiB of them at most.
export class Kept {
  constructor(app, signal, changed) { Object.assign(this, { app, signal, changed, all: new Map(), last: 0, due: 0 }); }

  of(id) { return this.all.get(id); }

  // look gets what is new, once in half a second at most, and drops what Orla has forgotten.
  look() {
    const tools = this.app.status?.arguments_kept;
    let fewer = false;
    for (const [id, c] of this.all) if (!tools?.some((k) => k.tool === c.tool)) fewer = this.all.delete(id);
    if (fewer) this.changed();
    if (!tools || !this.app.operates || this.due) return;
    this.due = setTimeout(() => this.ask(), 100);
  }

  async ask() {
    try {
      const { calls } = await get(path(['arguments'], { after: this.last }), this.signal);
      for (const c of calls) { this.all.set(c.call_id, c); this.last = c.n; }
      for (const id of this.all.keys()) { if (this.all.size <= 4096) break; this.all.delete(id); }
      if (calls.length) this.changed();
    } catch (error) { failed(error); }
    this.due = setTimeout(() => { this.due = 0; if (this.again) { this.again = false; this.look(); } }, 500);
  }

  // called is told of calls that have ended.
  called(lines) {
    if (!lines.some((l) => l.msg === 'call' && keptOf(this.app, l.tool))) return;
    if (this.due) this.again = true; else this.look();
  }
}
