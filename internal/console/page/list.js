// A list of many rows, of which only those that are seen are drawn.

import { h } from './dom.js';

export class List {
  // row(item, old) returns the element of a row. It may change and return old, the row's element before. key(item)
  // tells rows apart. height is that of a row, in pixels.
  constructor({ row, key, label, height, follow = false, role = 'list' }) {
    Object.assign(this, { row, key, height, follow, items: [], shown: new Map() });
    this.rows = role === 'rowgroup'; // of a table
    this.space = this.rows ? h('div', { class: 'space', role: 'presentation' }) : h('div', { class: 'space', role, 'aria-label': label });
    this.el = h('div', { class: 'rows', tabindex: '0', 'aria-label': label, role: this.rows ? role : 'group' }, this.space);
    this.el.addEventListener('scroll', () => { this.atEnd = this.isAtEnd(); this.soon(); }, { passive: true });
    this.atEnd = follow;
    this.sizes = new ResizeObserver(() => { this.fit(); this.draw(); });
    this.sizes.observe(this.el);
  }

  isAtEnd() { return this.el.scrollTop + this.el.clientHeight >= this.el.scrollHeight - this.height; }

  fit() {
    const given = parseFloat(getComputedStyle(this.el).getPropertyValue('--row'));
    if (given) this.height = given;
  }

  // show shows items. Each row is drawn again, since its item may have changed.
  show(items) {
    this.items = items;
    this.fresh = true;
    this.soon();
  }

  soon() {
    if (this.due) return;
    this.due = requestAnimationFrame(() => { this.due = 0; this.draw(); });
  }

  end() { this.atEnd = true; this.soon(); }

  draw() {
    if (!this.el.isConnected) return;
    const total = this.items.length * this.height;
    if (this.total !== total) {
      this.space.style.height = (this.total = total) + 'px';
      if (this.rows) this.el.closest('[role=table]').setAttribute('aria-rowcount', this.items.length + 1);
    }
    if (this.follow && this.atEnd) this.el.scrollTop = this.el.scrollHeight;
    const extra = 6;
    const first = Math.max(0, Math.floor(this.el.scrollTop / this.height) - extra);
    const last = Math.min(this.items.length, Math.ceil((this.el.scrollTop + this.el.clientHeight) / this.height) + extra);
    const now = new Map();
    let before = null; // rows stand in the order in which they are seen
    for (let i = first; i < last; i++) {
      const item = this.items[i], key = this.key(item);
      const old = this.shown.get(key);
      const el = old && !this.fresh && old.item === item ? old.el : this.row(item, old?.el);
      if (old && old.el !== el) old.el.remove();
      el.style.transform = `translateY(${i * this.height}px)`;
      const next = before ? before.nextSibling : this.space.firstChild;
      if (next !== el) this.space.insertBefore(el, next);
      before = el;
      el.setAttribute(this.rows ? 'aria-rowindex' : 'aria-posinset', this.rows ? i + 2 : i + 1); // the first row is the head
      if (!this.rows) el.setAttribute('aria-setsize', this.items.length);
      this.shown.delete(key);
      now.set(key, { el, item });
    }
    for (const { el } of this.shown.values()) el.remove();
    this.shown = now;
    this.fresh = false;
  }
}
