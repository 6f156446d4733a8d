/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The methods of str that part a text and put parts together: split, splitlines, partition, join
 * and those that do it from the right.
 *
 * Parts are slices of the text they come from, so each byte keeps its origin and nothing is
 * copied; only join() makes new text. CPython is the reference: runs of white space part words
 * where no separator is given, an empty separator is an error, and from the right means that the
 * bound counts from there, not that the parts come in another order.
 */
#include "src/text/template_strmethod.h"
#include "src/text/template_text.h"

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

/* From the right, so the parts come out last first; the caller turns them round. */
static ech_status rsplit_sep(ech_tvm *const vm, const ech_tstr *const s, const ech_tstr *const sep,
                             int64_t max, ech_tseq *const out)
{
    size_t end = s->len;
    for (;;) {
        const size_t hit = max-- == 0 ? SIZE_MAX : ech_tstr_find_last(s, 0, end, sep);
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

ech_status ech_tstr_m_split(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    ech_tstr *sep;
    int64_t max;
    ech_tseq *out;
    ECH_TRY(split_args(vm, c, &sep, &max));
    ECH_TRY(ech_tstr_split(vm, self_of(c), sep, max, &out));
    *ret = ech_tv_seq(ECH_T_LIST, out);
    return ECH_OK;
}

ech_status ech_tstr_m_rsplit(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
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

ech_status ech_tstr_m_splitlines(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
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

ech_status ech_tstr_m_join(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
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
    const size_t hit = last            ? ech_tstr_find_last(s, 0, s->len, sep)
                       : first == NULL ? SIZE_MAX
                                       : (size_t)(first - s->ptr);
    if (hit != SIZE_MAX) return partition_at(vm, s, hit, sep->len, ret);
    return partition_at(vm, s, last ? 0 : s->len, 0, ret);
}

ech_status ech_tstr_m_partition(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    return partition(vm, c, false, ret);
}
ech_status ech_tstr_m_rpartition(ech_tvm *const vm, ech_tcall *const c, ech_tval *const ret)
{
    return partition(vm, c, true, ret);
}
