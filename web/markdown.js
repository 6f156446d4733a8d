// Markdown to DOM nodes. Text from a model is data: it only ever becomes text nodes inside the fixed
// elements made here, never HTML, so nothing in it can run. Links go to http and https alone, and an
// image becomes a link to it: a page must not fetch what a model names.

export const el = (name, cls, ...children) => {
  const e = document.createElement(name);
  if (cls) e.className = cls;
  e.append(...children);
  return e;
};

// ---- inside a line -------------------------------------------------------------------------

// What may begin a span, in the order in which it is tried at each place. Each has bounds of its own,
// so that no text takes more than a few passes.
const SPANS = [
  [/^\\([\\`*_{}[\]()#+\-.!|~<>])/, m => [m[1]]],
  [/^(`+)([^`]|[^`][\s\S]*?[^`])\1(?!`)/, m => [el('code', '', m[2].trim())]],
  [/^!?\[([^\]\n]{0,500})\]\((https?:\/\/[^\s)]{1,2000})(?:\s+"[^"\n]*")?\)/, m => [link(m[2], m[1] || m[2])]],
  [/^<?(https?:\/\/[^\s<>()`*]{1,2000}[^\s<>()`*.,;:!?'"])>?/, m => [link(m[1], m[1])]],
  [/^\*\*(?=\S)([\s\S]{0,2000}?\S)\*\*/, m => [el('strong', '', ...inline(m[1]))]],
  [/^__(?=\S)([\s\S]{0,2000}?\S)__(?!\w)/, m => [el('strong', '', ...inline(m[1]))]],
  [/^~~(?=\S)([\s\S]{0,2000}?\S)~~/, m => [el('del', '', ...inline(m[1]))]],
  [/^\*(?=[^\s*])([^*\n]{0,2000}?[^\s*])\*(?!\*)/, m => [el('em', '', ...inline(m[1]))]],
  [/^_(?=[^\s_])([^_\n]{0,2000}?[^\s_])_(?!\w)/, m => [el('em', '', ...inline(m[1]))]],
  [/^ {2,}\n|^\n/, () => [el('br')]],
];
const MARK = /[\\`![<*_~\n]|https?:\/\/| {2,}\n/g;

function link(href, text) {
  const a = el('a', '', text);
  a.href = href;
  a.rel = 'noopener noreferrer nofollow';
  a.target = '_blank';
  return a;
}

function inline(text) {
  const out = [];
  let plain = '';
  for (let at = 0; at < text.length;) {
    MARK.lastIndex = at;
    const next = MARK.exec(text);
    if (!next) { plain += text.slice(at); break; }
    plain += text.slice(at, next.index);
    at = next.index;
    const rest = text.slice(at, at + 4500);
    const inWord = /\w$/.test(plain) && rest[0] === '_';
    const span = !inWord && SPANS.map(([re, make]) => [re.exec(rest), make]).find(([m]) => m);
    if (span) {
      if (plain) out.push(plain);
      plain = '';
      out.push(...span[1](span[0]));
      at += span[0][0].length;
    } else {
      plain += text[at++];
    }
  }
  if (plain) out.push(plain);
  return out;
}

// ---- code ----------------------------------------------------------------------------------

const WORDS = new Set(('auto await async bool break case catch char class const continue def default delete do double elif else enum except export extends extern '
  + 'False false finally float fn for from func function if impl import in include int interface is lambda let long match mod mut new nil None not null nullptr '
  + 'of or and pass pub public private protected raise return self short signed size_t sizeof static str struct super switch this throw True true try type '
  + 'typedef typename union unsigned use using var void volatile where while with yield').split(' '));
const HASH = new Set(['py', 'python', 'sh', 'bash', 'shell', 'yaml', 'yml', 'toml', 'make', 'ruby', 'rb', 'r', 'perl', 'cmake', 'dockerfile']);
const PLAIN = new Set(['', 'text', 'txt', 'plain', 'markdown', 'md', 'diff', 'output', 'console']);

// A comment, a string, a number or a word: coarse, but right for most languages that models write.
function paint(code, language) {
  if (PLAIN.has(language) || code.length > 50000) return [code];
  const comment = HASH.has(language) ? '#[^\\n]*' : '//[^\\n]*|/\\*[\\s\\S]*?(?:\\*/|$)' + (language === 'sql' ? '|--[^\\n]*' : '');
  const re = new RegExp(`(${comment})|("(?:\\\\.|[^"\\\\\\n])*"?|'(?:\\\\.|[^'\\\\\\n])*'?)|(\\b\\d[\\w.]*)|(#[a-z]+\\b|[A-Za-z_]\\w*)`, 'g');
  const out = [];
  let at = 0;
  for (const m of code.matchAll(re)) {
    const kind = m[1] ? 'comment' : m[2] ? 'string' : m[3] ? 'number' : WORDS.has(m[4]) || m[4].startsWith('#') ? 'word' : '';
    if (!kind) continue;
    out.push(code.slice(at, m.index), el('span', 't-' + kind, m[0]));
    at = m.index + m[0].length;
  }
  return [...out, code.slice(at)];
}

function codeBlock(text, language) {
  const copy = el('button', '', 'Copy');
  copy.type = 'button';
  copy.addEventListener('click', async () => {
    try { await navigator.clipboard.writeText(text); copy.textContent = 'Copied'; } catch { copy.textContent = 'No clipboard'; }
    setTimeout(() => { copy.textContent = 'Copy'; }, 1500);
  });
  const pre = el('pre', '', el('code', '', ...paint(text, language.toLowerCase())));
  pre.tabIndex = 0;  // a long line can be scrolled to with the keyboard
  return el('div', 'code', el('div', 'bar', el('span', '', language || 'text'), copy), pre);
}

// ---- blocks --------------------------------------------------------------------------------

const FENCE = /^( {0,3}|\t)(`{3,}|~{3,})\s*([^\s`]*)/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])(\s+|$)/;
const RULE = /^ {0,3}([-*_])(\s*\1){2,}\s*$/;
const HEAD = /^ {0,3}(#{1,6})\s+(.*?)\s*#*\s*$/;
const QUOTE = /^ {0,3}> ?/;
const ALIGN = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;

const cells = line => line.trim().replace(/^\||\|$/g, '').split(/(?<!\\)\|/).map(c => c.trim().replaceAll('\\|', '|'));
const indent = line => /^\s*/.exec(line)[0].replaceAll('\t', '    ').length;
const isTable = (lines, i) => lines[i].includes('|') && lines[i + 1]?.includes('-') && ALIGN.test(lines[i + 1]) && cells(lines[i]).length === cells(lines[i + 1]).length;
const begins = (lines, i) => FENCE.test(lines[i]) || ITEM.test(lines[i]) || RULE.test(lines[i]) || HEAD.test(lines[i]) || QUOTE.test(lines[i]) || isTable(lines, i);

// The index after the block that begins at line i, and what kind it is.
function span(lines, i) {
  const line = lines[i];
  const fence = FENCE.exec(line);
  const until = test => { let j = i + 1; while (j < lines.length && test(lines[j], j)) j++; return j; };
  if (fence) {
    const end = until(l => !(l.trim().startsWith(fence[2]) && /^[`~]+$/.test(l.trim())));
    return { kind: 'code', end: Math.min(end + 1, lines.length), closed: end < lines.length, fence };
  }
  if (HEAD.test(line)) return { kind: 'head', end: i + 1 };
  if (RULE.test(line)) return { kind: 'rule', end: i + 1 };
  if (QUOTE.test(line)) return { kind: 'quote', end: until(l => QUOTE.test(l) || (l.trim() && !ITEM.test(l) && !FENCE.test(l))) };
  if (isTable(lines, i)) return { kind: 'table', end: until((l, j) => j === i + 1 || l.includes('|')) };
  if (ITEM.test(line)) {
    const own = indent(line);
    const isOrdered = l => /^\s*\d/.test(l);
    // A blank line belongs to the list if the list goes on after it.
    const stays = l => (ITEM.test(l) && indent(l) >= own && (indent(l) > own || isOrdered(l) === isOrdered(line))) || indent(l) > own;
    let end = until((l, j) => {
      if (!l.trim()) { const k = lines.findIndex((o, at) => at > j && o.trim()); return k > 0 && stays(lines[k]); }
      return stays(l) || (!begins(lines, j) && lines[j - 1].trim());
    });
    return { kind: 'list', end };
  }
  return { kind: 'text', end: until((l, j) => l.trim() && !begins(lines, j)) };
}

function table(lines) {
  const align = cells(lines[1]).map(c => (/^:-+:$/.test(c) ? 'center' : /-:$/.test(c) ? 'right' : ''));
  const row = (name, line) => el('tr', '', ...align.map((a, k) => el(name, a, ...inline(cells(line)[k] ?? ''))));
  return el('div', 'wide', el('table', '', el('thead', '', row('th', lines[0])), el('tbody', '', ...lines.slice(2).map(l => row('td', l)))));
}

function list(lines, depth) {
  const own = indent(lines[0]);
  const first = ITEM.exec(lines[0])[2];
  const items = [];
  for (const line of lines) {
    const m = ITEM.exec(line);
    if (m && indent(line) === own) items.push([line.slice(m[0].length)]);
    else items.at(-1).push(line);
  }
  const out = el(/\d/.test(first) ? 'ol' : 'ul');
  if (/\d/.test(first)) out.start = parseInt(first, 10);
  for (const item of items) {
    const inner = Math.min(...item.slice(1).filter(l => l.trim()).map(indent), 99);
    const body = [item[0], ...item.slice(1).map(l => l.slice(Math.min(inner, /^\s*/.exec(l)[0].length)))];
    const task = /^\[([ xX])\]\s+/.exec(body[0]);
    if (task) body[0] = (task[1] === ' ' ? '☐ ' : '☑ ') + body[0].slice(task[0].length);
    const nodes = blocks(body.join('\n'), depth + 1).map(b => b.node());
    // An item of one paragraph needs none.
    out.append(el('li', '', ...(nodes[0]?.tagName === 'P' ? [...nodes[0].childNodes, ...nodes.slice(1)] : nodes)));
  }
  return out;
}

function make(kind, lines, s, depth) {
  switch (kind) {
  case 'code': return codeBlock(lines.slice(1, s.closed ? -1 : undefined).join('\n'), s.fence[3]);
  case 'head': { const m = HEAD.exec(lines[0]); return el('h' + Math.min(6, m[1].length + 1), '', ...inline(m[2])); }
  case 'rule': return el('hr');
  case 'quote': return el('blockquote', '', ...blocks(lines.map(l => l.replace(QUOTE, '')).join('\n'), depth + 1).map(b => b.node()));
  case 'table': return table(lines);
  case 'list': return list(lines, depth);
  default: return el('p', '', ...inline(lines.map(l => l.trimStart()).join('\n')));
  }
}

// The blocks of a text: each its source and a function that makes its node. Quotes and lists nest up to 8 deep.
function blocks(text, depth = 0) {
  const lines = text.split('\n');
  const out = [];
  for (let i = 0; i < lines.length;) {
    if (!lines[i].trim()) { i++; continue; }
    const s = depth > 8 ? { kind: 'text', end: lines.length } : span(lines, i);
    const part = lines.slice(i, s.end);
    out.push({ source: part.join('\n') + (s.closed ? '\n' : ''), node: () => make(s.kind, part, s, depth) });
    i = s.end;
  }
  return out;
}

const shown = new WeakMap();  // container → sources of the blocks in it

// Shows text in a container. Blocks that didn't change since the last call keep their nodes: a stream costs
// what is new, and a selection in what is there stays.
export function show(container, text) {
  const before = shown.get(container) ?? [];
  const now = blocks(text);
  let same = 0;
  while (same < now.length && same < before.length && now[same].source === before[same]) same++;
  while (container.childNodes.length > same) container.lastChild.remove();
  container.append(...now.slice(same).map(b => b.node()));
  shown.set(container, now.map(b => b.source));
}
