// Returns what is wrong with the page for people who do not see it, or do not see it well: controls and pictures without
// a name, ids that are there twice, roles outside of what they belong to, and text with too little contrast (WCAG 2.2 AA).
(() => {
  const wrong = [];
  const seen = (el) => el.checkVisibility({ visibilityProperty: true, opacityProperty: true }) && el.getClientRects().length > 0;
  const where = (el) => el.tagName.toLowerCase() + (el.className?.baseVal ?? el.className ? '.' + String(el.className?.baseVal ?? el.className).trim().replace(/\s+/g, '.') : '') + ' "' + (el.textContent || '').trim().slice(0, 30) + '"';
  for (const el of document.querySelectorAll('a[href], button, input, select, textarea, progress, [tabindex="0"], [role=img], [role=table], img, dialog')) {
    if (!seen(el) || el.getAttribute('aria-hidden') === 'true') continue;
    const by = (el.getAttribute('aria-labelledby') || '').split(' ').map((id) => document.getElementById(id)?.textContent || '').join(' ');
    const own = /^(A|BUTTON|PRE|MAIN)$/.test(el.tagName) ? el.textContent : '';
    const name = [el.getAttribute('aria-label'), by, el.alt, [...(el.labels || [])].map((l) => l.textContent).join(' '), own].find((t) => t && t.trim());
    if (!name && !(el.tagName === 'IMG' && el.hasAttribute('alt'))) wrong.push('no name: ' + where(el));
  }
  const ids = new Set();
  for (const { id } of document.querySelectorAll('[id]')) { if (ids.has(id)) wrong.push('twice: #' + id); ids.add(id); }
  for (const [role, within] of [['tab', 'tablist'], ['row', 'table'], ['cell', 'row'], ['columnheader', 'row'], ['listitem', 'list']]) {
    for (const el of document.querySelectorAll(`[role=${role}]`)) if (!el.closest(`[role=${within}]`)) wrong.push(`${role} outside of ${within}: ` + where(el));
  }
  if ([...document.querySelectorAll('h1')].filter(seen).length !== 1) wrong.push('not exactly one h1');
  const rgba = (text) => { const n = (text.match(/[\d.]+/g) || []).map(Number); return [n[0] || 0, n[1] || 0, n[2] || 0, n[3] ?? 1]; };
  const over = ([r, g, b, a], under) => [r, g, b].map((c, i) => c * a + under[i] * (1 - a));
  const light = (c) => { const [r, g, b] = c.map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const behind = (el) => { const own = rgba(getComputedStyle(el).backgroundColor); return own[3] === 1 || !el.parentElement ? own.slice(0, 3) : over(own, behind(el.parentElement)); };
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const el = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || !seen(el) || el.closest('svg, :disabled, option, noscript, [data-off]')) continue;
    const style = getComputedStyle(el), size = parseFloat(style.fontSize), large = size >= 24 || size >= 18.66 && style.fontWeight >= 700;
    let faint = 1;
    for (let e = el; e; e = e.parentElement) faint *= parseFloat(getComputedStyle(e).opacity);
    const ground = behind(el), ink = rgba(style.color);
    ink[3] *= faint;
    const [a, b] = [light(over(ink, ground)), light(ground)].sort((x, y) => y - x), ratio = (a + 0.05) / (b + 0.05);
    if (ratio < (large ? 3 : 4.5)) wrong.push(`contrast ${ratio.toFixed(2)}: ` + where(el));
  }
  return [...new Set(wrong)].slice(0, 10).join('\n');
})()
