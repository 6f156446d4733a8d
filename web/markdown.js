// Markdown to DOM nodes. Text from a model is data: it only ever becomes text nodes and the fixed
// elements made here, never HTML, so nothing in it can run. Links go to http and https alone.
'use strict';

const Markdown = (() => {
  const el = (name, ...children) => {
    const e = document.createElement(name);
    e.append(...children);
    return e;
  };

  const INLINE = /(`+)([\s\S]+?)\1|\*\*([^*]+)\*\*|__([^_]+)__|\*([^*\s][^*]*)\*|\[([^\]]+)\]\((https?:\/\/[^\s)]+)\)/;

  function inline(text) {
    const out = [];
    while (text) {
      const m = INLINE.exec(text);
      if (!m) { out.push(text); break; }
      if (m.index) out.push(text.slice(0, m.index));
      if (m[2] !== undefined) out.push(el('code', m[2].trim()));
      else if (m[3] ?? m[4]) out.push(el('strong', ...inline(m[3] ?? m[4])));
      else if (m[5]) out.push(el('em', ...inline(m[5])));
      else {
        const a = el('a', m[6]);
        a.href = m[7];
        a.rel = 'noopener noreferrer nofollow';
        a.target = '_blank';
        out.push(a);
      }
      text = text.slice(m.index + m[0].length);
    }
    return out;
  }

  function codeBlock(lines) {
    const text = lines.join('\n');
    const copy = el('button', 'Copy');
    copy.type = 'button';
    copy.addEventListener('click', () => navigator.clipboard?.writeText(text));
    const box = el('div', el('pre', el('code', text)), copy);
    box.className = 'code';
    return box;
  }

  const cells = line => line.trim().replace(/^\||\|$/g, '').split('|').map(c => c.trim());

  function table(lines) {
    const head = el('tr', ...cells(lines[0]).map(c => el('th', ...inline(c))));
    const rows = lines.slice(2).map(l => el('tr', ...cells(l).map(c => el('td', ...inline(c)))));
    return el('table', el('thead', head), el('tbody', ...rows));
  }

  const LIST = /^\s*([-*+]|\d+[.)])\s+/;

  function list(lines) {
    const ordered = /^\s*\d/.test(lines[0]);
    return el(ordered ? 'ol' : 'ul', ...lines.map(l => el('li', ...inline(l.replace(LIST, '')))));
  }

  function paragraph(lines) {
    const p = el('p');
    lines.forEach((l, i) => { if (i) p.append(el('br')); p.append(...inline(l)); });
    return p;
  }

  // Takes lines while `test` holds, from `from`; returns the index after them.
  const run = (lines, from, test) => {
    let i = from;
    while (i < lines.length && test(lines[i], i)) i++;
    return i;
  };

  function render(text) {
    const out = [];
    const lines = text.split('\n');
    for (let i = 0; i < lines.length;) {
      const line = lines[i];
      const fence = /^\s*(```+|~~~+)/.exec(line);
      if (fence) {
        const end = run(lines, i + 1, l => !l.trim().startsWith(fence[1]));
        out.push(codeBlock(lines.slice(i + 1, end)));
        i = end + 1;
      } else if (!line.trim()) {
        i++;
      } else if (/^#{1,6}\s/.test(line)) {
        const level = /^#+/.exec(line)[0].length;
        out.push(el('h' + Math.min(6, level + 1), ...inline(line.replace(/^#+\s*/, ''))));
        i++;
      } else if (line.includes('|') && /^[\s|:-]*-[\s|:-]*$/.test(lines[i + 1] ?? '')) {
        const end = run(lines, i, l => l.includes('|'));
        out.push(table(lines.slice(i, end)));
        i = end;
      } else if (LIST.test(line)) {
        const end = run(lines, i, l => LIST.test(l));
        out.push(list(lines.slice(i, end)));
        i = end;
      } else {
        const end = run(lines, i, l => l.trim() && !/^\s*(```|~~~)/.test(l) && !LIST.test(l));
        out.push(paragraph(lines.slice(i, end)));
        i = end;
      }
    }
    return out;
  }

  return { render };
})();
