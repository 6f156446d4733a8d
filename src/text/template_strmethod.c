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
 * cheap way to spend time. Memory is the rendering's; texts are never changed in place.
 */
#include "src/base/utf8.h"
#include "src/text/template_builtin.h"
#include "src/text/template_text.h"

static ech_tstr *self_of(const ech_tcall *const c)
{
    return c->self.as.str;
}
static bool given(const ech_tval v)
{
    return v.kind != ECH_T_ABSENT && v.kind != ECH_T_NONE;
}

static size_t char_at(const ech_tstr *const s, const size_t at, uint32_t *const ret)
{
    const int n = ech_utf8_decode(s->ptr + at, s->len - at, ret);
    return n > 0 ? (size_t)n : 1;
}

/* Where the character before byte `at` begins. */
static size_t char_before(const ech_tstr *const s, size_t at)
{
    do {
        at--;
    } while (at > 0 && ((uint8_t)s->ptr[at] & 0xc0) == 0x80);
    return at;
}

/* ---- case ---- */

/* Python's rule for a capital sigma at the end of a word. */
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

/* Once, not as often as it stands there: that is what tells it from lstrip. */
static ech_status m_removeprefix(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    const ech_tstr *const s = self_of(c);
    ech_tstr *p;
    ECH_TRY(ech_targ_str(vm, c->a[0], &p));
    const bool has = s->len >= p->len && memcmp(s->ptr, p->ptr, p->len) == 0;
    const size_t cut = has ? p->len : 0;
    return ech_tv_slice(vm, s, cut, s->len - cut, ret);
}

static ech_status m_removesuffix(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    const ech_tstr *const s = self_of(c);
    ech_tstr *p;
    ECH_TRY(ech_targ_str(vm, c->a[0], &p));
    const bool has = s->len >= p->len && memcmp(s->ptr + s->len - p->len, p->ptr, p->len) == 0;
    return ech_tv_slice(vm, s, 0, s->len - (has ? p->len : 0), ret);
}

/* ---- splitting and joining ---- */

/* Parts are slices: they share the text's memory, and every byte keeps its origin. */
static ech_status push_slice(ech_tvm *const vm, ech_tseq *const out, const ech_tstr *const s,
                             const size_t from, const size_t to)
{
    ech_tval part;
    ECH_TRY(ech_tv_slice(vm, s, from, to - from, &part));
    return ech_tseq_push(vm, out, part);
}

/*
 * Without a separator: runs of white space part the words, and there are no empty ones. After max
 * words the rest comes whole, without the white space at its end.
 */
static ech_status split_space(ech_tvm *const vm, const ech_tstr *const s, int64_t max,
                              ech_tseq *const out)
{
    size_t at = 0, n;
    for (;;) {
        while (at < s->len && (n = ech_ttext_space(s->ptr + at, s->len - at)) > 0) {
            at += n;
        }
        if (at == s->len) return ECH_OK;
        if (max-- == 0) return push_slice(vm, out, s, at, ech_ttext_rstrip(s->ptr, s->len));
        const size_t from = at;
        while (at < s->len && ech_ttext_space(s->ptr + at, s->len - at) == 0) {
            at++;
        }
        ECH_TRY(push_slice(vm, out, s, from, at));
    }
}

/* With one: every occurrence parts, so that empty texts come out between two of them. */
static ech_status split_sep(ech_tvm *const vm, const ech_tstr *const s, const ech_tstr *const sep,
                            int64_t max, ech_tseq *const out)
{
    size_t from = 0;
    for (;;) {
        const char *const hit =
            max-- == 0 ? NULL : memmem(s->ptr + from, s->len - from, sep->ptr, sep->len);
        if (hit == NULL) return push_slice(vm, out, s, from, s->len);
        ECH_TRY(ech_tvm_charge(vm, 1));
        ECH_TRY(push_slice(vm, out, s, from, (size_t)(hit - s->ptr)));
        from = (size_t)(hit - s->ptr) + sep->len;
    }
}

ech_status ech_tstr_split(ech_tvm *const vm, const ech_tstr *const s, const ech_tstr *const sep,
                          const int64_t max, ech_tseq **const ret)
{
    ECH_TRY(ech_tvm_charge(vm, s->len / 32));
    ECH_TRY(ech_tseq_new(vm, 0, ret));
    if (sep == NULL) return split_space(vm, s, max, *ret);
    if (sep->len == 0) return ech_tvm_raise(vm, "empty separator");
    return split_sep(vm, s, sep, max, *ret);
}

/* The last place of what in s[0, end), or SIZE_MAX. */
static size_t find_last(const ech_tstr *const s, const size_t from, const size_t end,
                        const ech_tstr *const what)
{
    if (what->len > end - from) return SIZE_MAX;
    for (size_t at = end - what->len + 1; at > from; at--) {
        if (memcmp(s->ptr + at - 1, what->ptr, what->len) == 0) return at - 1;
    }
    return SIZE_MAX;
}

/* From the right, so the parts come out last first; the caller turns them round. */
static ech_status rsplit_sep(ech_tvm *const vm, const ech_tstr *const s, const ech_tstr *const sep,
                             int64_t max, ech_tseq *const out)
{
    size_t end = s->len;
    for (;;) {
        const size_t hit = max-- == 0 ? SIZE_MAX : find_last(s, 0, end, sep);
        if (hit == SIZE_MAX) return push_slice(vm, out, s, 0, end);
        ECH_TRY(push_slice(vm, out, s, hit + sep->len, end));
        end = hit;
    }
}

/* split_space from the other end, with the same rule for the rest. */
static ech_status rsplit_space(ech_tvm *const vm, const ech_tstr *const s, int64_t max,
                               ech_tseq *const out)
{
    size_t end = s->len;
    for (;;) {
        end = ech_ttext_rstrip(s->ptr, end);
        if (end == 0) return ECH_OK;
        size_t at = end;
        if (max-- == 0) {
            size_t from = 0, n;
            while ((n = ech_ttext_space(s->ptr + from, end - from)) > 0) {
                from += n;
            }
            return push_slice(vm, out, s, from, end);
        }
        while (at > 0) {
            const size_t before = char_before(s, at);
            if (ech_ttext_space(s->ptr + before, end - before) > 0) break;
            at = before;
        }
        ECH_TRY(push_slice(vm, out, s, at, end));
        end = at;
    }
}

/* sep may be None, and max -1 means no bound. */
static ech_status split_args(ech_tvm *const vm, const ech_tcall *const c, ech_tstr **const ret_sep,
                             int64_t *const ret_max)
{
    *ret_sep = NULL;
    *ret_max = -1;
    if (given(c->a[0])) ECH_TRY(ech_targ_str(vm, c->a[0], ret_sep));
    if (c->a[1].kind != ECH_T_ABSENT) ECH_TRY(ech_targ_int(vm, c->a[1], ret_max));
    return ECH_OK;
}

static ech_status m_split(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    ech_tstr *sep;
    int64_t max;
    ech_tseq *out;
    ECH_TRY(split_args(vm, c, &sep, &max));
    ECH_TRY(ech_tstr_split(vm, self_of(c), sep, max, &out));
    *ret = ech_tv_seq(ECH_T_LIST, out);
    return ECH_OK;
}

static ech_status m_rsplit(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    ech_tstr *sep;
    int64_t max;
    ech_tseq *out;
    ECH_TRY(split_args(vm, c, &sep, &max));
    ECH_TRY(ech_tvm_charge(vm, self_of(c)->len / 16));
    if (sep != NULL && sep->len == 0) return ech_tvm_raise(vm, "empty separator");
    ECH_TRY(ech_tseq_new(vm, 0, &out));
    ECH_TRY(sep == NULL ? rsplit_space(vm, self_of(c), max, out)
                        : rsplit_sep(vm, self_of(c), sep, max, out));
    for (size_t i = 0; i < out->n / 2; i++) {
        const ech_tval swap = out->items[i];
        out->items[i] = out->items[out->n - 1 - i];
        out->items[out->n - 1 - i] = swap;
    }
    *ret = ech_tv_seq(ECH_T_LIST, out);
    return ECH_OK;
}

/* The bytes of the line end at byte `at`; 0 for none. */
static size_t line_end(const ech_tstr *const s, const size_t at)
{
    uint32_t cp;
    const size_t n = char_at(s, at, &cp);
    if (cp == '\r' && at + 1 < s->len && s->ptr[at + 1] == '\n') return 2;
    const bool ends = (cp >= 0x0a && cp <= 0x0d) || (cp >= 0x1c && cp <= 0x1e) || cp == 0x85 ||
                      cp == 0x2028 || cp == 0x2029;
    return ends ? n : 0;
}

/*
 * Python's line ends, which are more than \n: \v, \f, the separators of ASCII and of Unicode. A
 * text that ends with one has no empty line behind it.
 */
ech_status ech_tstr_lines(ech_tvm *const vm, const ech_tstr *const s, const bool keep_ends,
                          ech_tseq **const ret)
{
    ECH_TRY(ech_tvm_charge(vm, s->len / 16));
    ECH_TRY(ech_tseq_new(vm, 0, ret));
    size_t from = 0;
    for (size_t at = 0; at < s->len;) {
        uint32_t cp;
        const size_t end = line_end(s, at);
        if (end == 0) {
            at += char_at(s, at, &cp);
            continue;
        }
        ECH_TRY(push_slice(vm, *ret, s, from, keep_ends ? at + end : at));
        at += end;
        from = at;
    }
    return from < s->len ? push_slice(vm, *ret, s, from, s->len) : ECH_OK;
}

static ech_status m_splitlines(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    ech_tseq *out;
    ECH_TRY(ech_tstr_lines(vm, self_of(c), c->a[0].kind != ECH_T_ABSENT && ech_tv_truth(c->a[0]),
                           &out));
    *ret = ech_tv_seq(ECH_T_LIST, out);
    return ECH_OK;
}

/*
 * str.join, and the filter's join with str_items, which takes any value. A separator that is
 * markup escapes what it joins.
 */
ech_status ech_tstr_join(ech_tvm *const vm, const ech_tstr *const sep, const ech_tval items,
                         const bool str_items, ech_tval *const ret)
{
    ech_titer *it;
    ech_tbuild b = { .vm = vm };
    ECH_TRY(ech_titer_open(vm, items, &it));
    for (size_t i = 0;; i++) {
        ech_tval v;
        ech_tstr *s;
        ECH_TRY(ech_titer_next(vm, it, &v));
        if (v.kind == ECH_T_ABSENT) break;
        if (str_items)
            ECH_TRY(ech_tv_to_str(vm, v, false, &s));
        else if (sep->is_markup) {
            ECH_TRY(ech_tv_escape(vm, v, &v));
            s = v.as.str;
        } else if (v.kind == ECH_T_STR) {
            s = v.as.str;
        } else {
            return ech_tvm_raise(vm, "sequence item %zu: expected str instance, %s found", i,
                                 ech_tv_type(v));
        }
        if (i > 0) ECH_TRY(ech_tbuild_str(&b, sep));
        ECH_TRY(ech_tbuild_str(&b, s));
    }
    return ech_tbuild_done(&b, ret);
}

static ech_status m_join(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    return ech_tstr_join(vm, self_of(c), c->a[0], false, ret);
}

/*
 * Three slices, the middle one the separator as it stands in the text: its bytes have the text's
 * origin, not the argument's.
 */
static ech_status partition_at(ech_tvm *const vm, const ech_tstr *const s, const size_t hit,
                               const size_t len, ech_tval *const ret)
{
    ech_tseq *out;
    ECH_TRY(ech_tseq_new(vm, 3, &out));
    ECH_TRY(push_slice(vm, out, s, 0, hit));
    ECH_TRY(push_slice(vm, out, s, hit, hit + len));
    ECH_TRY(push_slice(vm, out, s, hit + len, s->len));
    *ret = ech_tv_seq(ECH_T_TUPLE, out);
    return ECH_OK;
}

/* Python swaps the ends when there is no hit: the text stands first, or last for rpartition. */
static ech_status partition(ech_tvm *const vm, ech_tcall *const c, const bool last,
                            ech_tval *const ret)
{
    const ech_tstr *const s = self_of(c);
    ech_tstr *sep;
    ECH_TRY(ech_targ_str(vm, c->a[0], &sep));
    if (sep->len == 0) return ech_tvm_raise(vm, "empty separator");
    ECH_TRY(ech_tvm_charge(vm, s->len / 16));
    const char *const first = last ? NULL : memmem(s->ptr, s->len, sep->ptr, sep->len);
    const size_t hit = last            ? find_last(s, 0, s->len, sep)
                       : first == NULL ? SIZE_MAX
                                       : (size_t)(first - s->ptr);
    if (hit != SIZE_MAX) return partition_at(vm, s, hit, sep->len, ret);
    return partition_at(vm, s, last ? 0 : s->len, 0, ret);
}

static ech_status m_partition(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    return partition(vm, c, false, ret);
}
static ech_status m_rpartition(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    return partition(vm, c, true, ret);
}

/* ---- searching and replacing ---- */

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
            hit = find_last(s, from, to, what);
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
    { "join", m_join, "!iterable" },
    { "ljust", m_ljust, "!width ?fillchar" },
    { "lower", m_lower, "!" },
    { "lstrip", m_lstrip, "!?chars" },
    { "maketrans", m_refused, NULL },
    { "partition", m_partition, "!sep" },
    { "removeprefix", m_removeprefix, "!prefix" },
    { "removesuffix", m_removesuffix, "!suffix" },
    { "replace", m_replace, "!old new ?count" },
    { "rfind", m_rfind, "!sub ?start ?end" },
    { "rindex", m_rindex, "!sub ?start ?end" },
    { "rjust", m_rjust, "!width ?fillchar" },
    { "rpartition", m_rpartition, "!sep" },
    { "rsplit", m_rsplit, "?sep ?maxsplit" },
    { "rstrip", m_rstrip, "!?chars" },
    { "split", m_split, "?sep ?maxsplit" },
    { "splitlines", m_splitlines, "?keepends" },
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
