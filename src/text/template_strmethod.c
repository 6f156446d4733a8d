/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The methods of str, by code points, with the origin of every byte kept.
 *
 * A character that a method makes out of another (upper, title) has that one's origin; padding has
 * the origin of the character it is made of. Left out: encode, translate, maketrans, which fail by
 * name when they are called.
 *
 * The reference is CPython's str. Positions and widths count code points, memory is bytes: each
 * method converts at its borders. Long walks are charged by their length, so that no method is a
 * cheap way to spend time. Memory is the rendering's; texts are never changed in place. What parts
 * a text or puts parts together is in template_strsplit.c.
 */
#include "src/base/utf8.h"
#include "src/text/template_builtin.h"
#include "src/text/template_strmethod.h"
#include "src/text/template_text.h"

/* ---- case ---- */

/*
 * Python's rule for a capital sigma at the end of a word. A cased letter before it and none behind
 * it, with apostrophes, dots and marks looked through. Each walk ends at the first character that
 * counts.
 */
static bool is_final_sigma(const ech_tstr *const s, const size_t at, const size_t next)
{
    uint32_t cp = 0;
    size_t i = at;
    bool cased = false;
    while (i > 0) {
        i = char_before(s, i);
        (void)char_at(s, i, &cp);
        if (ech_ttext_is_case_ignorable(cp)) continue;
        cased = ech_ttext_is_upper(cp) || ech_ttext_is_lower(cp) || ech_ttext_is_title(cp);
        break;
    }
    if (!cased) return false;
    for (i = next; i < s->len;) {
        i += char_at(s, i, &cp);
        if (ech_ttext_is_case_ignorable(cp)) continue;
        return !(ech_ttext_is_upper(cp) || ech_ttext_is_lower(cp) || ech_ttext_is_title(cp));
    }
    return true;
}

/* The one letter whose small form depends on its neighbours. */
static int map_lower(const ech_tstr *const s, const size_t at, const size_t next, const uint32_t cp,
                     uint32_t *const out)
{
    if (cp == 0x3a3) {
        out[0] = is_final_sigma(s, at, next) ? 0x3c2 : 0x3c3;
        return 1;
    }
    return ech_ttext_lower(cp, out);
}

static bool is_cased(const uint32_t cp)
{
    return ech_ttext_is_upper(cp) || ech_ttext_is_lower(cp) || ech_ttext_is_title(cp);
}

/*
 * Up to three characters may come out of one (ß, ligatures). CAPITALIZE uses title case for the
 * first character, as Python does since 3.8.
 */
static int map_char(const ech_tstr *const s, const size_t at, const size_t next, const uint32_t cp,
                    const ech_tcase how, const bool after_cased, uint32_t *const out)
{
    switch (how) {
    case ECH_TCASE_UPPER:
        return ech_ttext_upper(cp, out);
    case ECH_TCASE_LOWER:
        return map_lower(s, at, next, cp, out);
    case ECH_TCASE_CAPITALIZE:
        return at == 0 ? ech_ttext_title(cp, out) : map_lower(s, at, next, cp, out);
    case ECH_TCASE_TITLE:
        return after_cased ? map_lower(s, at, next, cp, out) : ech_ttext_title(cp, out);
    case ECH_TCASE_FOLD:
        return ech_ttext_fold(cp, out);
    default:
        if (ech_ttext_is_upper(cp)) return map_lower(s, at, next, cp, out);
        return ech_ttext_is_lower(cp) ? ech_ttext_upper(cp, out) : (out[0] = cp, 1);
    }
}

/* Markup stays markup: changing case makes no brackets. */
ech_status ech_tstr_case(ech_tvm *const vm, const ech_tstr *const s, const ech_tcase how,
                         ech_tval *const ret)
{
    ech_tbuild b = { .vm = vm };
    bool after_cased = false;
    ECH_TRY(ech_tvm_charge(vm, s->len / 16));
    for (size_t at = 0; at < s->len;) {
        uint32_t cp, out[4];
        const size_t next = at + char_at(s, at, &cp);
        const int n = map_char(s, at, next, cp, how, after_cased, out);
        for (int i = 0; i < n; i++) {
            ECH_TRY(ech_tbuild_cp(&b, out[i], ech_tstr_data_at(s, at)));
        }
        after_cased = is_cased(cp);
        at = next;
    }
    ECH_TRY(ech_tbuild_done(&b, ret));
    ret->as.str->is_markup = s->is_markup;
    return ECH_OK;
}

static ech_status m_upper(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    return ech_tstr_case(vm, self_of(c), ECH_TCASE_UPPER, ret);
}
static ech_status m_lower(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    return ech_tstr_case(vm, self_of(c), ECH_TCASE_LOWER, ret);
}
static ech_status m_capitalize(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    return ech_tstr_case(vm, self_of(c), ECH_TCASE_CAPITALIZE, ret);
}
static ech_status m_title(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    return ech_tstr_case(vm, self_of(c), ECH_TCASE_TITLE, ret);
}
static ech_status m_swapcase(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    return ech_tstr_case(vm, self_of(c), ECH_TCASE_SWAP, ret);
}
static ech_status m_casefold(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    return ech_tstr_case(vm, self_of(c), ECH_TCASE_FOLD, ret);
}

/* ---- stripping ---- */

/*
 * Whether strip takes this character off: white space as Python sees it, or any of the given ones.
 * A whole character is looked for in `chars`: UTF-8 can't match across its borders.
 */
static bool is_stripped(const ech_tstr *const s, const size_t at, const size_t len,
                        const ech_tstr *const chars)
{
    if (chars == NULL) return ech_ttext_space(s->ptr + at, len) > 0;
    return memmem(chars->ptr, chars->len, s->ptr + at, len) != NULL;
}

/*
 * sides: 1 left, 2 right, or both. Long sets of characters cost steps, or a template could make a
 * quadratic walk of a cheap call.
 */
ech_status ech_tstr_strip(ech_tvm *const vm, const ech_tstr *const s, const ech_tstr *const chars,
                          const int sides, ech_tval *const ret)
{
    size_t from = 0, to = s->len;
    while ((sides & 1) != 0 && from < to) {
        uint32_t cp;
        const size_t n = char_at(s, from, &cp);
        if (!is_stripped(s, from, n, chars)) break;
        ECH_TRY(ech_tvm_charge(vm, chars == NULL ? 0 : chars->len / 64));
        from += n;
    }
    while ((sides & 2) != 0 && to > from) {
        const size_t at = char_before(s, to);
        if (!is_stripped(s, at, to - at, chars)) break;
        ECH_TRY(ech_tvm_charge(vm, chars == NULL ? 0 : chars->len / 64));
        to = at;
    }
    return ech_tv_slice(vm, s, from, to - from, ret);
}

/* None means white space, as no argument does. */
static ech_status strip_arg(ech_tvm *const vm, ech_tcall *const c, const int sides,
                            ech_tval *const ret)
{
    ech_tstr *chars = NULL;
    if (given(c->a[0])) ECH_TRY(ech_targ_str(vm, c->a[0], &chars));
    return ech_tstr_strip(vm, self_of(c), chars, sides, ret);
}

static ech_status m_strip(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    return strip_arg(vm, c, 3, ret);
}
static ech_status m_lstrip(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    return strip_arg(vm, c, 1, ret);
}
static ech_status m_rstrip(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    return strip_arg(vm, c, 2, ret);
}

/*
 * Once, not as often as it stands there: that is what tells it from lstrip. Bytes are compared, as
 * a whole prefix can only match at a character's border.
 */
static ech_status m_removeprefix(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    const ech_tstr *const s = self_of(c);
    ech_tstr *p;
    ECH_TRY(ech_targ_str(vm, c->a[0], &p));
    const bool has = s->len >= p->len && memcmp(s->ptr, p->ptr, p->len) == 0;
    const size_t cut = has ? p->len : 0;
    return ech_tv_slice(vm, s, cut, s->len - cut, ret);
}

/* The same from the end: UTF-8 can't match in the middle of a character. */
static ech_status m_removesuffix(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    const ech_tstr *const s = self_of(c);
    ech_tstr *p;
    ECH_TRY(ech_targ_str(vm, c->a[0], &p));
    const bool has = s->len >= p->len && memcmp(s->ptr + s->len - p->len, p->ptr, p->len) == 0;
    return ech_tv_slice(vm, s, 0, s->len - (has ? p->len : 0), ret);
}

/* ---- searching and replacing ---- */

/* From the end: memrchr has no relative for texts in libc. */
size_t ech_tstr_find_last(const ech_tstr *const s, const size_t from, const size_t end,
                          const ech_tstr *const what)
{
    if (what->len > end - from) return SIZE_MAX;
    for (size_t at = end - what->len + 1; at > from; at--) {
        if (memcmp(s->ptr + at - 1, what->ptr, what->len) == 0) return at - 1;
    }
    return SIZE_MAX;
}

/* The empty pattern stands before every character and at the end. */
static ech_status replace_everywhere(ech_tvm *const vm, const ech_tstr *const s,
                                     const ech_tstr *const to, int64_t count, ech_tbuild *const b)
{
    for (size_t at = 0; at <= s->len;) {
        uint32_t cp;
        if (count-- == 0) return ech_tbuild_sub(b, s, at, s->len - at);
        ECH_TRY(ech_tvm_charge(vm, 1));
        ECH_TRY(ech_tbuild_str(b, to));
        if (at == s->len) return ECH_OK;
        const size_t n = char_at(s, at, &cp);
        ECH_TRY(ech_tbuild_sub(b, s, at, n));
        at += n;
    }
    return ECH_OK;
}

/*
 * What is put in has its own origin and what stays keeps its: a user's text is no less a user's
 * where the template replaced a word in it. Without a match the text itself is the result, copied
 * nowhere.
 */
ech_status ech_tstr_replace(ech_tvm *const vm, const ech_tstr *const s, const ech_tstr *const from,
                            const ech_tstr *const to, int64_t count, ech_tval *const ret)
{
    ech_tbuild b = { .vm = vm };
    ECH_TRY(ech_tvm_charge(vm, s->len / 32));
    if (from->len == 0) {
        ECH_TRY(replace_everywhere(vm, s, to, count, &b));
        return ech_tbuild_done(&b, ret);
    }
    size_t at = 0;
    for (;;) {
        const char *const hit =
            count-- == 0 ? NULL : memmem(s->ptr + at, s->len - at, from->ptr, from->len);
        if (hit == NULL) break;
        const size_t i = (size_t)(hit - s->ptr);
        ECH_TRY(ech_tvm_charge(vm, 1));
        ECH_TRY(ech_tbuild_sub(&b, s, at, i - at));
        ECH_TRY(ech_tbuild_str(&b, to));
        at = i + from->len;
    }
    if (at == 0) return ech_tv_slice(vm, s, 0, s->len, ret);
    ECH_TRY(ech_tbuild_sub(&b, s, at, s->len - at));
    return ech_tbuild_done(&b, ret);
}

/* A Markup escapes what is put into it, as markupsafe does. */
static ech_status m_replace(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    ech_tstr *from, *to;
    int64_t count = -1;
    ECH_TRY(ech_targ_str(vm, c->a[0], &from));
    ECH_TRY(ech_targ_str(vm, c->a[1], &to));
    if (c->a[2].kind != ECH_T_ABSENT) ECH_TRY(ech_targ_int(vm, c->a[2], &count));
    if (self_of(c)->is_markup) {
        ech_tval escaped;
        ECH_TRY(ech_tv_escape(vm, c->a[1], &escaped));
        to = escaped.as.str;
    }
    return ech_tstr_replace(vm, self_of(c), from, to, count, ret);
}

/*
 * s[start:end] of a method's optional arguments, in bytes; false when start lies beyond end.
 * Python's slicing: negative positions count from the end, what is too large is cut, but a start
 * past the end is told from an empty window (find of "" fails there).
 */
static ech_status window(ech_tvm *const vm, ech_tstr *const s, const ech_tval start,
                         const ech_tval end, size_t *const from, size_t *const to,
                         bool *const ret_valid)
{
    const int64_t n = (int64_t)ech_tstr_chars(s);
    int64_t a = 0, z = n;
    if (given(start)) ECH_TRY(ech_targ_int(vm, start, &a));
    if (given(end)) ECH_TRY(ech_targ_int(vm, end, &z));
    if (a < 0) a = a + n < 0 ? 0 : a + n;
    if (z < 0) z = z + n < 0 ? 0 : z + n;
    if (z > n) z = n;
    *ret_valid = a <= z;
    *from = *ret_valid ? ech_tstr_byte_of(s, (size_t)a) : 0;
    *to = *ret_valid ? ech_tstr_byte_of(s, (size_t)z) : 0;
    return ECH_OK;
}

/* Whether what stands at one end of s[from, to). */
static bool affix_at(const ech_tstr *const s, const size_t from, const size_t to,
                     const ech_tstr *const what, const bool at_end)
{
    if (what->len > to - from) return false;
    return memcmp(at_end ? s->ptr + to - what->len : s->ptr + from, what->ptr, what->len) == 0;
}

/*
 * A tuple asks for any of several. Positions past the end match nothing, not even the empty text.
 */
static ech_status has_affix(ech_tvm *const vm, ech_tcall *const c, const bool at_end,
                            ech_tval *const ret)
{
    ech_tstr *const s = self_of(c);
    size_t from, to;
    bool valid, found = false;
    ECH_TRY(window(vm, s, c->a[1], c->a[2], &from, &to, &valid));
    ech_tseq one = { .items = &c->a[0], .n = 1 };
    const ech_tseq *const all = c->a[0].kind == ECH_T_TUPLE ? c->a[0].as.seq : &one;
    for (size_t i = 0; i < all->n && !found; i++) {
        ech_tstr *what;
        ECH_TRY(ech_targ_str(vm, all->items[i], &what));
        found = valid && affix_at(s, from, to, what, at_end);
    }
    *ret = ech_tv_bool(found);
    return ECH_OK;
}

static ech_status m_startswith(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    return has_affix(vm, c, false, ret);
}
static ech_status m_endswith(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    return has_affix(vm, c, true, ret);
}

/* Positions are given in characters, so the bytes before the hit are counted. */
static ech_status find(ech_tvm *const vm, ech_tcall *const c, const bool last, const bool must,
                       ech_tval *const ret)
{
    ech_tstr *const s = self_of(c);
    ech_tstr *what;
    size_t from, to, hit = SIZE_MAX;
    bool valid;
    ECH_TRY(ech_targ_str(vm, c->a[0], &what));
    ECH_TRY(window(vm, s, c->a[1], c->a[2], &from, &to, &valid));
    ECH_TRY(ech_tvm_charge(vm, s->len / 16));
    if (valid && what->len <= to - from) {
        const char *const first =
            last ? NULL : memmem(s->ptr + from, to - from, what->ptr, what->len);
        if (last)
            hit = ech_tstr_find_last(s, from, to, what);
        else if (what->len == 0)
            hit = from;
        else if (first != NULL)
            hit = (size_t)(first - s->ptr);
    }
    if (hit == SIZE_MAX && must) return ech_tvm_raise(vm, "substring not found");
    int64_t chars = -1;
    if (hit != SIZE_MAX) {
        chars = 0;
        for (size_t i = 0; i < hit; i++) {
            chars += ((uint8_t)s->ptr[i] & 0xc0) != 0x80;
        }
    }
    *ret = ech_tv_int(chars);
    return ECH_OK;
}

static ech_status m_find(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    return find(vm, c, false, false, ret);
}
static ech_status m_rfind(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    return find(vm, c, true, false, ret);
}
static ech_status m_index(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    return find(vm, c, false, true, ret);
}
static ech_status m_rindex(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    return find(vm, c, true, true, ret);
}

/* The empty text occurs once more than there are characters. Occurrences don't overlap. */
static ech_status m_count(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    ech_tstr *const s = self_of(c);
    ech_tstr *what;
    size_t from, to;
    bool valid;
    int64_t n = 0;
    ECH_TRY(ech_targ_str(vm, c->a[0], &what));
    ECH_TRY(window(vm, s, c->a[1], c->a[2], &from, &to, &valid));
    ECH_TRY(ech_tvm_charge(vm, s->len / 16));
    if (valid && what->len == 0) {
        for (size_t i = from; i < to; i++) {
            n += ((uint8_t)s->ptr[i] & 0xc0) != 0x80;
        }
        n++;
    } else if (valid) {
        const char *hit;
        while ((hit = memmem(s->ptr + from, to - from, what->ptr, what->len)) != NULL) {
            n++;
            from = (size_t)(hit - s->ptr) + what->len;
        }
    }
    *ret = ech_tv_int(n);
    return ECH_OK;
}

/* ---- padding ---- */

static ech_status fill(ech_tbuild *const b, const ech_tstr *const what, const int64_t n)
{
    if (n <= 0) return ECH_OK;
    if (what == NULL) return ech_tbuild_fill(b, ' ', (size_t)n, false);
    if (what->len == 1)
        return ech_tbuild_fill(b, what->ptr[0], (size_t)n, ech_tstr_data_at(what, 0));
    for (int64_t i = 0; i < n; i++) {
        ECH_TRY(ech_tvm_charge(b->vm, 1));
        ECH_TRY(ech_tbuild_str(b, what));
    }
    return ECH_OK;
}

ech_status ech_tstr_pad(ech_tvm *const vm, ech_tstr *const s, const int64_t width,
                        const ech_tstr *const what, const int side, ech_tval *const ret)
{
    const int64_t pad = width - (int64_t)ech_tstr_chars(s);
    if (pad <= 0) return ech_tv_slice(vm, s, 0, s->len, ret);
    ech_tbuild b = { .vm = vm };
    /* Where the padding is odd, Python's rule for the half that gets more. */
    const int64_t left = side == 1 ? 0 : side == 2 ? pad : pad / 2 + (pad & width & 1);
    ECH_TRY(fill(&b, what, left));
    ECH_TRY(ech_tbuild_str(&b, s));
    ECH_TRY(fill(&b, what, pad - left));
    return ech_tbuild_done(&b, ret);
}

static ech_status pad_args(ech_tvm *const vm, ech_tcall *const c, const int side,
                           ech_tval *const ret)
{
    int64_t width;
    ech_tstr *what = NULL;
    ECH_TRY(ech_targ_int(vm, c->a[0], &width));
    if (c->a[1].kind != ECH_T_ABSENT) {
        ECH_TRY(ech_targ_str(vm, c->a[1], &what));
        if (ech_tstr_chars(what) != 1)
            return ech_tvm_raise(vm, "the fill character must be exactly one character long");
    }
    return ech_tstr_pad(vm, self_of(c), width, what, side, ret);
}

static ech_status m_center(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    return pad_args(vm, c, 0, ret);
}
static ech_status m_ljust(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    return pad_args(vm, c, 1, ret);
}
static ech_status m_rjust(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    return pad_args(vm, c, 2, ret);
}

static ech_status m_zfill(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    ech_tstr *const s = self_of(c);
    int64_t width;
    ECH_TRY(ech_targ_int(vm, c->a[0], &width));
    const int64_t pad = width - (int64_t)ech_tstr_chars(s);
    ech_tbuild b = { .vm = vm };
    const size_t sign = s->len > 0 && (s->ptr[0] == '-' || s->ptr[0] == '+') ? 1 : 0;
    ECH_TRY(ech_tbuild_sub(&b, s, 0, sign));
    if (pad > 0) ECH_TRY(ech_tbuild_fill(&b, '0', (size_t)pad, false));
    ECH_TRY(ech_tbuild_sub(&b, s, sign, s->len - sign));
    return ech_tbuild_done(&b, ret);
}

/* Columns are counted from the last line end. A size of 0 takes tabs out. */
static ech_status m_expandtabs(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    const ech_tstr *const s = self_of(c);
    int64_t size = 8, column = 0;
    ech_tbuild b = { .vm = vm };
    if (c->a[0].kind != ECH_T_ABSENT) ECH_TRY(ech_targ_int(vm, c->a[0], &size));
    for (size_t at = 0; at < s->len;) {
        uint32_t cp;
        const size_t n = char_at(s, at, &cp);
        if (cp == '\t') {
            const int64_t pad = size > 0 ? size - column % size : 0;
            ECH_TRY(ech_tbuild_fill(&b, ' ', (size_t)pad, ech_tstr_data_at(s, at)));
            column += pad;
        } else {
            ECH_TRY(ech_tbuild_sub(&b, s, at, n));
            column = cp == '\n' || cp == '\r' ? 0 : column + 1;
        }
        at += n;
    }
    return ech_tbuild_done(&b, ret);
}

/* ---- asking ---- */

/* Whether there is a character and all of them are such. */
static ech_status all_chars(ech_tvm *const vm, const ech_tcall *const c, bool (*const is)(uint32_t),
                            ech_tval *const ret)
{
    const ech_tstr *const s = self_of(c);
    bool all = s->len > 0;
    ECH_TRY(ech_tvm_charge(vm, s->len / 32));
    for (size_t at = 0; at < s->len && all;) {
        uint32_t cp;
        at += char_at(s, at, &cp);
        all = is(cp);
    }
    *ret = ech_tv_bool(all);
    return ECH_OK;
}

static bool is_alnum(const uint32_t cp)
{
    return ech_ttext_is_alpha(cp) || ech_ttext_is_numeric(cp);
}
static bool is_ascii(const uint32_t cp)
{
    return cp < 0x80;
}

static ech_status m_isalpha(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    return all_chars(vm, c, ech_ttext_is_alpha, ret);
}
static ech_status m_isalnum(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    return all_chars(vm, c, is_alnum, ret);
}
static ech_status m_isdecimal(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    return all_chars(vm, c, ech_ttext_is_decimal, ret);
}
static ech_status m_isdigit(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    return all_chars(vm, c, ech_ttext_is_digit, ret);
}
static ech_status m_isnumeric(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    return all_chars(vm, c, ech_ttext_is_numeric, ret);
}
static ech_status m_isspace(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    return all_chars(vm, c, ech_ttext_is_space, ret);
}

static ech_status m_isascii(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    ECH_TRY(all_chars(vm, c, is_ascii, ret));
    if (self_of(c)->len == 0) *ret = ech_tv_bool(true);
    return ECH_OK;
}

static ech_status m_isprintable(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    ECH_TRY(all_chars(vm, c, ech_ttext_is_printable, ret));
    if (self_of(c)->len == 0) *ret = ech_tv_bool(true);
    return ECH_OK;
}

static ech_status m_isidentifier(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    const ech_tstr *const s = self_of(c);
    uint32_t cp = 0;
    ECH_TRY(all_chars(vm, c, ech_ttext_is_word, ret));
    if (s->len > 0) (void)char_at(s, 0, &cp);
    if (!ech_ttext_is_word_start(cp)) *ret = ech_tv_bool(false);
    return ECH_OK;
}

/* islower, isupper: some cased character, and none of the other case. */
static ech_status one_case(ech_tvm *const vm, const ech_tcall *const c, const bool upper,
                           ech_tval *const ret)
{
    const ech_tstr *const s = self_of(c);
    bool some = false, none = true;
    ECH_TRY(ech_tvm_charge(vm, s->len / 32));
    for (size_t at = 0; at < s->len && none;) {
        uint32_t cp;
        at += char_at(s, at, &cp);
        const bool up = ech_ttext_is_upper(cp), low = ech_ttext_is_lower(cp);
        some = some || (upper ? up : low);
        none = !(upper ? low : up) && !ech_ttext_is_title(cp);
    }
    *ret = ech_tv_bool(some && none);
    return ECH_OK;
}

static ech_status m_islower(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    return one_case(vm, c, false, ret);
}
static ech_status m_isupper(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    return one_case(vm, c, true, ret);
}

/* Upper case only after what has no case, lower case only after what has. */
static ech_status m_istitle(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    const ech_tstr *const s = self_of(c);
    bool some = false, ok = true, after_cased = false;
    (void)vm;
    for (size_t at = 0; at < s->len && ok;) {
        uint32_t cp;
        at += char_at(s, at, &cp);
        const bool up = ech_ttext_is_upper(cp) || ech_ttext_is_title(cp),
                   low = ech_ttext_is_lower(cp);
        ok = up ? !after_cased : !low || after_cased;
        after_cased = up || low;
        some = some || after_cased;
    }
    *ret = ech_tv_bool(some && ok);
    return ECH_OK;
}

static ech_status m_format(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    return ech_tstr_format(vm, self_of(c), c, ret);
}

static ech_status m_format_map(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    ech_tcall inner = { 0 };
    if (c->a[0].kind != ECH_T_DICT) return ech_tvm_raise(vm, "format_map() needs a mapping");
    for (size_t i = 0; i < c->a[0].as.dict->n; i++) {
        const ech_tentry *const e = &c->a[0].as.dict->entries[i];
        if (e->key.kind == ECH_T_STR)
            ECH_TRY(
                ech_tcall_push_kw(vm, &inner, e->key.as.str->ptr, e->key.as.str->len, e->value));
    }
    return ech_tstr_format(vm, self_of(c), &inner, ret);
}

static ech_status m_refused(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    (void)c;
    (void)ret;
    return ech_tvm_fail(vm, ECH_EUNSUPPORTED,
                        "encode, translate and maketrans of str are not supported");
}

static const ech_tbuiltin methods[] = {
    { "capitalize", m_capitalize, "!" },
    { "casefold", m_casefold, "!" },
    { "center", m_center, "!width ?fillchar" },
    { "count", m_count, "!sub ?start ?end" },
    { "encode", m_refused, NULL },
    { "endswith", m_endswith, "!suffix ?start ?end" },
    { "expandtabs", m_expandtabs, "?tabsize" },
    { "find", m_find, "!sub ?start ?end" },
    { "format", m_format, NULL },
    { "format_map", m_format_map, "!mapping" },
    { "index", m_index, "!sub ?start ?end" },
    { "isalnum", m_isalnum, "!" },
    { "isalpha", m_isalpha, "!" },
    { "isascii", m_isascii, "!" },
    { "isdecimal", m_isdecimal, "!" },
    { "isdigit", m_isdigit, "!" },
    { "isidentifier", m_isidentifier, "!" },
    { "islower", m_islower, "!" },
    { "isnumeric", m_isnumeric, "!" },
    { "isprintable", m_isprintable, "!" },
    { "isspace", m_isspace, "!" },
    { "istitle", m_istitle, "!" },
    { "isupper", m_isupper, "!" },
    { "join", ech_tstr_m_join, "!iterable" },
    { "ljust", m_ljust, "!width ?fillchar" },
    { "lower", m_lower, "!" },
    { "lstrip", m_lstrip, "!?chars" },
    { "maketrans", m_refused, NULL },
    { "partition", ech_tstr_m_partition, "!sep" },
    { "removeprefix", m_removeprefix, "!prefix" },
    { "removesuffix", m_removesuffix, "!suffix" },
    { "replace", m_replace, "!old new ?count" },
    { "rfind", m_rfind, "!sub ?start ?end" },
    { "rindex", m_rindex, "!sub ?start ?end" },
    { "rjust", m_rjust, "!width ?fillchar" },
    { "rpartition", ech_tstr_m_rpartition, "!sep" },
    { "rsplit", ech_tstr_m_rsplit, "?sep ?maxsplit" },
    { "rstrip", m_rstrip, "!?chars" },
    { "split", ech_tstr_m_split, "?sep ?maxsplit" },
    { "splitlines", ech_tstr_m_splitlines, "?keepends" },
    { "startswith", m_startswith, "!prefix ?start ?end" },
    { "strip", m_strip, "!?chars" },
    { "swapcase", m_swapcase, "!" },
    { "title", m_title, "!" },
    { "translate", m_refused, NULL },
    { "upper", m_upper, "!" },
    { "zfill", m_zfill, "!width" },
    { NULL, NULL, NULL },
};

const ech_tbuiltin *ech_tstr_method(const char *const name, const size_t len)
{
    return ech_tbuiltin_in(methods, name, len);
}
