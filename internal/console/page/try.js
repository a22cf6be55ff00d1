// Try it: a form of the input schema, raw JSON, the call, and its result as a client gets it.

import { get, postText, events, path, Refused, serial } from './api.js';
import { indented, parts } from './json.js';
import { h, set, replace, button, icon, took, empty, failed, toast, command, plain, bytes, copy } from './dom.js';

export function tryView(app, of = '', tool = '') {
  const leaving = new AbortController();
  const box = h('div', { class: 'trybox' }, h('p', { class: 'dim' }, 'Loading the schema.'));
  const el = h('section', { class: 'view' }, h('a', { class: 'back', href: '#/tool/' + encodeURIComponent(of) + '/offers' }, icon('back'), of || 'Tools'), h('div', { class: 'top' }, h('h1', {}, 'Try it')), box);
  let shown = false;
  const load = serial(async () => {
    if (shown) return;
    try {
      const list = (await get('/v1/tools', leaving.signal)).tools.filter((t) => t.of === of);
      const one = list.find((t) => t.name === tool) || list[0];
      shown = Boolean(one);
      if (!one) replace(box, empty('There is nothing to call', `${of || 'This tool'} offers no tools now.`, h('a', { class: 'button', href: '#/tool/' + encodeURIComponent(of) }, 'Its state')));
      else replace(box, form(app, one, list, leaving.signal));
    } catch (error) { failed(error); }
  });
  load();
  return {
    el, title: 'Try ' + (tool || of),
    change(change) { if (change.tools?.some((t) => t.name === of)) load(); },
    live(on) { if (on) load(); },
    leave: () => leaving.abort(),
  };
}

function form(app, tool, list, leaving) {
  const schema = tool.input_schema || {};
  const fields = Object.entries(schema.properties || {}).map(([key, s]) => field(key, s && typeof s === 'object' ? s : {}, (schema.required || []).includes(key), changed));
  const raw = h('textarea', { class: 'raw', rows: '10', spellcheck: 'false', 'aria-label': 'Arguments as JSON', oninput: () => { typed = true; changed(); } });
  const fault = h('p', { class: 'fault', role: 'alert' });
  const result = h('div', { class: 'result' });
  const bar = h('progress', { max: '1', 'aria-label': 'Progress of the call' }), step = h('span', {}), progress = h('div', { class: 'progress', hidden: true }, bar, step);
  const asked = h('div', { class: 'asked' });
  const equals = h('div', { class: 'equals' });
  const send = button('start', 'Call', call, { class: 'primary' });
  const cancel = button('stop', 'Cancel', () => running?.abort(), { hidden: true });
  const timer = h('span', { class: 'dim', role: 'status' });
  const fromForm = h('button', { type: 'button', class: 'link', hidden: true, onclick: () => { typed = false; changed(); } }, 'Take the form again');
  let typed = !fields.length, running = null, ticking;

  // value returns the arguments as JSON, or throws what is wrong with them. It stays text, so that no digit is lost.
  function value() {
    if (typed) {
      const text = raw.value.trim() || '{}';
      const v = JSON.parse(text);
      if (v === null || typeof v !== 'object' || Array.isArray(v)) throw new Error('Arguments are an object: {"name": value}.');
      return text;
    }
    const members = [];
    for (const f of fields) {
      const given = f.value();
      if (given !== undefined) members.push(JSON.stringify(f.key) + ': ' + given);
    }
    return members.length ? '{\n  ' + members.join(',\n  ') + '\n}' : '{}';
  }

  function changed() {
    let args;
    try { args = value(); set(fault, ''); } catch (error) { set(fault, error.message); }
    send.disabled = args === undefined || Boolean(running);
    fromForm.hidden = !typed || !fields.length;
    for (const f of fields) f.el.toggleAttribute('data-off', typed);
    if (args === undefined) return;
    if (!typed) raw.value = args;
    const text = /[\n\r]/.test(args) ? args.replace(/\s*\n\s*/g, ' ') : args; // JSON has no line end in a string
    const request = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: tool.name, arguments: 0, _meta: { 'io.modelcontextprotocol/protocolVersion': '2026-07-28', 'io.modelcontextprotocol/clientInfo': { name: 'curl', version: '1' }, 'io.modelcontextprotocol/clientCapabilities': {} } } }).replace('"arguments":0', () => '"arguments":' + text);
    replace(equals, h('h2', {}, 'The same in a terminal'), command(`orla call ${quoted(tool.name)} --json ${quoted(text)}`),
      app.status?.url?.startsWith('http') && command(`curl -s ${app.status.url} -H 'Content-Type: application/json' -H 'Accept: application/json, text/event-stream' -H 'Mcp-Protocol-Version: 2026-07-28' -H 'Mcp-Method: tools/call' -H ${quoted('Mcp-Name: ' + tool.name)} -d ${quoted(request)}`));
  }

  // fill enters arguments into the form. If it cannot have them as they are, they stay JSON.
  function fill(text) {
    const form = (json) => (json.startsWith('"') ? JSON.stringify(JSON.parse(json)) : indented(json));
    const joined = (members) => '{' + Object.entries(members).map(([key, json]) => JSON.stringify(key) + ':' + json).join(',') + '}';
    try {
      const members = parts(text);
      for (const f of fields) f.fill(members[f.key]);
      const entered = parts(value()), keys = Object.keys(members);
      typed = !fields.length || indented(joined(members)) !== indented(text) || keys.length !== Object.keys(entered).length || keys.some((key) => !(key in entered) || form(entered[key]) !== form(members[key]));
    } catch { typed = true; }
    if (typed) raw.value = indented(text);
    if (text.includes('[redacted]')) toast('These arguments have [redacted] in place of secrets. Enter them before you call.', true);
  }

  async function call() {
    let args;
    try { args = value(); } catch { return; }
    running = new AbortController();
    leaving.addEventListener('abort', () => running?.abort(), { once: true });
    send.disabled = true;
    cancel.hidden = false;
    const began = performance.now();
    const tick = () => set(timer, `Running for ${took(performance.now() - began)}`);
    ticking = setInterval(tick, 100);
    replace(result);
    try {
      let text;
      await events(path(['tools', tool.name, 'call']), `{"stream": true, "arguments": ${args}}`, running.signal, (line) => {
        if (line.startsWith('{"result":')) text = line.slice(10, -1); // as text, since numbers may have more digits than a script can hold
        else told(JSON.parse(line));
      });
      if (text === undefined) throw new Error('The answer broke off.');
      replace(result, show(text, performance.now() - began));
    } catch (error) {
      const canceled = running.signal.aborted;
      replace(result, h('div', { class: 'banner ' + (canceled ? '' : 'bad') }, h('p', {}, canceled ? 'Canceled. The tool was told so.' : error.message + (error.hint ? ' ' + error.hint : ''), error.code && h('a', { class: 'code' }, error.code))));
    }
    clearInterval(ticking);
    progress.hidden = true;
    replace(asked);
    running = null;
    cancel.hidden = true;
    set(timer, '');
    changed();
  }

  // told draws what the tool says while the call runs.
  function told(event) {
    if (event.error) throw new Refused(0, event.error);
    if (event.progress) {
      const p = event.progress;
      progress.hidden = false;
      if (p.total > 0) bar.value = Math.min(1, p.progress / p.total); else bar.removeAttribute('value');
      set(step, [p.total > 0 ? `${p.progress} of ${p.total}` : p.progress, p.message && plain(String(p.message)).slice(0, 300)].filter((t) => t !== undefined && t !== '').join(': '));
    }
    if (event.question) { asked.append(question(event.question)); asked.lastChild.querySelector('input, select, textarea, button')?.focus(); }
    if (event.answered) for (const q of [...asked.children]) if (q.dataset.id === event.answered) q.remove();
  }

  if (typed) raw.value = '{}';
  const given = app.repeat?.tool === tool.name ? app.repeat.text : '';
  app.repeat = null;
  if (given) fill(given);
  const el = h('form', { class: 'try', onsubmit: (e) => { e.preventDefault(); call(); }, onkeydown: (e) => { if (e.key === 'Enter' && (e.ctrlKey || e.metaKey)) { e.preventDefault(); if (!send.disabled) call(); } } },
    list.length > 1 && h('label', { class: 'pick' }, h('span', {}, 'Tool'), h('select', { onchange: (e) => { location.hash = `#/try/${encodeURIComponent(tool.of)}/${encodeURIComponent(e.target.value)}`; } }, list.map((t) => h('option', { value: t.name, selected: t.name === tool.name }, t.name)))),
    h('div', { class: 'about' }, h('strong', {}, tool.title || tool.name), h('p', { class: 'dim' }, plain(tool.description || 'It has no description.'))),
    h('div', { class: 'columns' },
      h('fieldset', {}, h('legend', {}, 'Arguments'), fields.length ? fields.map((f) => f.el) : h('p', { class: 'dim' }, 'It names no arguments. JSON can have any.')),
      h('fieldset', {}, h('legend', {}, 'As JSON'), raw, fromForm)),
    fault, h('div', { class: 'go' }, send, cancel, timer, h('span', { class: 'dim hint' }, 'Ctrl Enter')), progress);
  changed();
  return h('div', { class: 'try' }, el, asked, result, equals); // a question is a form of its own
}

// question draws what a tool asks the person who made the call.
function question({ id, params }) {
  const schema = params.requestedSchema || {};
  const fault = h('p', { class: 'fault', role: 'alert' });
  const fields = Object.entries(schema.properties || {}).map(([key, s]) => field(key, s && typeof s === 'object' ? s : {}, (schema.required || []).includes(key), () => set(fault, ''), 'answer-' + id.slice(0, 8) + '-'));
  const say = (action) => async (event) => {
    event?.preventDefault();
    try {
      const content = action === 'accept' ? '{' + fields.map((f) => [f.key, f.value()]).filter(([, v]) => v !== undefined).map(([k, v]) => JSON.stringify(k) + ':' + v).join(',') + '}' : undefined;
      await postText(path(['questions', id]), content === undefined ? JSON.stringify({ action }) : `{"action":"accept","content":${content}}`);
    } catch (error) { set(fault, error.message); }
  };
  return h('form', { class: 'item waits', 'data-id': id, onsubmit: say('accept') },
    h('h2', {}, 'The tool asks'), h('p', { class: 'says' }, plain(String(params.message || ''))), fields.map((f) => f.el), fault,
    h('div', { class: 'go' }, h('button', { class: 'primary' }, 'Answer'), button('', 'Decline', say('decline')), button('', 'Dismiss', say('cancel'), { class: 'quiet' })));
}

// field makes what one argument is entered with. value() is undefined for what was left out.
function field(key, s, required, changed, prefix = 'arg-') {
  const id = prefix + key;
  const type = [].concat(s.type || []).filter((t) => t !== 'null')[0];
  let input, read;
  if (Array.isArray(s.enum)) {
    input = h('select', { id }, h('option', { value: '' }, required ? 'Choose' : 'Left out'), s.enum.map((v, i) => h('option', { value: String(i + 1) }, typeof v === 'string' ? v : JSON.stringify(v))));
    read = () => (input.value ? JSON.stringify(s.enum[input.value - 1]) : undefined);
  } else if (type === 'boolean') {
    input = h('select', { id }, [['', 'Left out'], ['true', 'true'], ['false', 'false']].map(([v, text]) => h('option', { value: v }, text)));
    read = () => input.value || undefined;
  } else if (type === 'integer' || type === 'number') {
    input = h('input', { id, inputmode: type === 'integer' ? 'numeric' : 'decimal', autocomplete: 'off' });
    read = () => {
      const text = input.value.trim();
      if (!text) return undefined;
      const form = type === 'integer' ? /^-?(0|[1-9]\d*)$/ : /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/;
      if (!form.test(text)) throw new Error(`${key}: ${type === 'integer' ? 'a whole number' : 'a number'} is needed.`);
      return text;
    };
  } else if (type === 'string') {
    const long = s.maxLength > 200 || /text|body|content|prompt|code|query|message/i.test(key);
    input = h(long ? 'textarea' : 'input', { id, autocomplete: 'off', rows: long && '4' });
    read = () => (input.value || required ? JSON.stringify(input.value) : undefined);
  } else if (type === 'array' && s.items?.type === 'string' && !s.items.enum) {
    input = h('textarea', { id, rows: '3', placeholder: 'One on each line' });
    read = () => (input.value ? JSON.stringify(input.value.split('\n').filter(Boolean)) : required ? '[]' : undefined);
  } else {
    input = h('textarea', { id, rows: '3', spellcheck: 'false', class: 'mono', placeholder: type === 'array' ? '[ ]' : type === 'object' ? '{ }' : 'JSON' });
    read = () => {
      if (!input.value.trim()) return undefined;
      try { JSON.parse(input.value); return input.value.trim(); } catch { throw new Error(`${key}: this is not JSON.`); }
    };
  }
  if (s.default !== undefined) {
    if (Array.isArray(s.enum)) input.value = String(s.enum.indexOf(s.default) + 1 || '');
    else input.value = typeof s.default === 'string' ? s.default : JSON.stringify(s.default);
  }
  input.addEventListener('input', changed);
  input.addEventListener('change', changed);
  // fill enters a value, which is JSON; undefined leaves it out.
  const fill = (json) => {
    const v = json === undefined ? undefined : JSON.parse(json);
    if (json === undefined) input.value = '';
    else if (Array.isArray(s.enum)) input.value = String(s.enum.findIndex((one) => JSON.stringify(one) === JSON.stringify(v)) + 1 || '');
    else if (typeof v === 'string' && type === 'string') input.value = v;
    else if (Array.isArray(v) && type === 'array' && s.items?.type === 'string') input.value = v.join('\n');
    else input.value = json;
  };
  const limits = [type || 'any', required && 'required', s.minimum !== undefined && 'from ' + s.minimum, s.maximum !== undefined && 'to ' + s.maximum, s.format].filter(Boolean).join(', ');
  const about = s.description && h('p', { class: 'dim', id: id + '-about' }, plain(String(s.description)));
  if (about) input.setAttribute('aria-describedby', id + '-about');
  return { key, value: read, fill, el: h('div', { class: 'field' }, h('label', { for: id }, h('code', {}, key), h('span', { class: 'dim' }, limits)), input, about) };
}

// show draws a result as a client gets it.
function show(raw, ms) {
  const result = JSON.parse(raw);
  const exact = /\d{16}|\de\+?\d{3}/i.test(raw); // a script does not hold such numbers
  const text = exact ? indented(raw) : JSON.stringify(result, null, 2);
  const meta = result._meta || {};
  return [
    h('div', { class: 'banner ' + (result.isError ? 'bad' : 'good') }, h('p', {}, result.isError ? 'The tool failed' : 'The tool answered', ` after ${took(ms)}`, meta.tool_code && h('code', {}, meta.tool_code), meta.retryable !== undefined && h('span', { class: 'dim' }, meta.retryable ? 'it may be tried again' : 'trying again does not help'))),
    (result.content || []).map(block),
    result.structuredContent !== undefined && h('div', { class: 'part' }, h('h3', {}, 'structuredContent'), h('pre', { tabindex: '0' }, exact ? indented(parts(raw).structuredContent) : JSON.stringify(result.structuredContent, null, 2))),
    h('details', { class: 'whole' }, h('summary', {}, `The whole result, ${bytes(text.length)}`), h('pre', { tabindex: '0' }, text.slice(0, 200_000)), button('copy', 'Copy', () => copy(text), { class: 'quiet' })),
  ];
}

const pictures = ['image/png', 'image/jpeg', 'image/gif', 'image/webp', 'image/svg+xml', 'image/avif'];

function block(b) {
  if (b.type === 'text') return h('pre', { class: 'part', tabindex: '0' }, plain(String(b.text)).slice(0, 200_000));
  if (b.type === 'image' && pictures.includes(b.mimeType)) return h('img', { class: 'part', alt: 'An image that the tool returned', src: `data:${b.mimeType};base64,${b.data}` }); // scripts in an SVG do not run in an img
  if (b.type === 'resource_link') return h('p', { class: 'part' }, h('strong', {}, b.title || b.name || 'Resource'), ' ', h('code', {}, b.uri), b.size && h('span', { class: 'dim' }, bytes(b.size)));
  if (b.type === 'resource' && b.resource?.text !== undefined) return h('div', { class: 'part' }, h('code', {}, b.resource.uri), h('pre', { tabindex: '0' }, plain(String(b.resource.text)).slice(0, 200_000)));
  return h('pre', { class: 'part', tabindex: '0' }, JSON.stringify(b, null, 2).slice(0, 20_000));
}

const quoted = (text) => (/^[\w./:-]+$/.test(text) ? text : "'" + text.replaceAll("'", "'\\''") + "'");
