// Draws JSON as the text that it is. A script would change it: numbers have more digits than it can hold, and a name may be
// there twice.

// unseen are characters that are drawn as nothing, or change how others are drawn.
const unseen = /[\p{C}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\u2800\u{1d159}]|(?! )\p{Zs}/gu;
const escaped = (c) => [...Array(c.length).keys()].map((i) => '\\u' + c.charCodeAt(i).toString(16).padStart(4, '0')).join('');

// Marks are seen where they belong: on a letter with which they are one character, or a few on a letter of a script that has
// marks of its own. Elsewhere they cover or strike what is before them.
const marked = /([^\p{M}]?)(\p{M}+)/gu, bare = /[\p{scx=Zyyy}\p{scx=Latn}\p{scx=Grek}\p{scx=Cyrl}]/u, anywhere = /\p{scx=Zinh}/u;
// The time of normalize grows with the square of the marks.
const belong = (letter, marks) => letter && marks.length <= 30 && (!/\p{M}/u.test((letter + marks).normalize('NFC')) || (/\p{L}/u.test(letter) && !bare.test(letter) && !anywhere.test(marks) && marks.length <= 6));

const ascii = /^[ -~]*$/;

// visible writes unseen characters as JSON escapes them.
export const visible = (text) => (ascii.test(text) ? String(text) : String(text).replace(unseen, escaped).replace(marked, (all, letter, marks) => (belong(letter, marks) ? all : letter + escaped(marks))));

const token = /"[^"\\]*(?:\\.[^"\\]*)*"|[{}[\],:]|[^\s{}[\],:"]+/gs;

const indents = [...Array(17).keys()].map((n) => '\n' + '  '.repeat(n));

// indented returns a JSON text on lines. Without blanks between the tokens it is the same text, but for unseen characters.
export function indented(json) {
  let out = '', depth = 0, before = '';
  for (const t of json.match(token) || []) {
    const closes = t === '}' || t === ']';
    if (closes) depth--;
    if (closes ? before !== '{' && before !== '[' : before === ',' || before === '{' || before === '[') out += indents[Math.min(depth, 16)] || '';
    if (t === '{' || t === '[') depth++;
    out += t === ':' ? ': ' : visible(t);
    before = t;
  }
  return out;
}

// parts returns the members of an object, or the items of a list, as texts.
export function parts(json) {
  const list = json.trimStart().startsWith('['), found = list ? [] : {};
  let depth = 0, begin = -1, name;
  for (const { 0: t, index } of json.matchAll(token)) {
    const end = t === '}' || t === ']';
    if (depth === 1 && begin >= 0 && (t === ',' || end)) {
      const text = json.slice(begin, index).trim();
      if (list) found.push(text); else found[name] = text;
      begin = -1;
    } else if (depth === 1 && begin < 0 && !end) {
      if (list) begin = index;
      else if (t === ':') begin = index + 1;
      else if (t !== ',') name = JSON.parse(t);
    }
    if (t === '{' || t === '[') depth++;
    if (end) depth--;
  }
  return found;
}
