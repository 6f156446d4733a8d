/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strings and the builder that makes them.
 *
 * Invariant: the bytes [0, used) of an ech_tmem are never overwritten, only bytes behind them are
 * written; so any number of strings may share them. Origins stand beside the bytes, one each.
 * Strings are valid UTF-8: every operation cuts between code points.
 */
#include "src/base/utf8.h"
#include "src/text/template_value.h"

static ech_status new_str(ech_tvm *const vm, const ech_tstr s, ech_tval *const ret)
{
    ech_tstr *p;
    ECH_TRY(ech_tvm_alloc(vm, 1, sizeof *p, &p));
    *p = s;
    *ret = ech_tv_str(p);
    return ECH_OK;
}

ech_status ech_tv_view(ech_tvm *const vm, const char *const ptr, const size_t len,
                       const bool is_data, ech_tval *const ret)
{
    const ech_tstr s = { .ptr = ptr, .len = len, .n_chars = SIZE_MAX, .is_data = is_data };
    return new_str(vm, s, ret);
}

ech_status ech_tv_lit(ech_tvm *const vm, const char *const cstr, ech_tval *const ret)
{
    return ech_tv_view(vm, cstr, strlen(cstr), false, ret);
}

/*
 * Shares the bytes and their origins. A text of one-byte characters has parts of the same kind, so
 * their count is known; of others it is found when it is needed.
 */
ech_status ech_tv_slice(ech_tvm *const vm, const ech_tstr *const s, const size_t from,
                        const size_t len, ech_tval *const ret)
{
    ech_tstr part = *s;
    part.ptr = s->ptr + from;
    part.origin = s->origin == NULL ? NULL : s->origin + from;
    part.len = len;
    if (len != s->len) part.n_chars = s->n_chars == s->len ? len : SIZE_MAX;
    return new_str(vm, part, ret);
}

ech_status ech_tv_marked(ech_tvm *const vm, const ech_tstr *const s, const bool is_markup,
                         ech_tval *const ret)
{
    ech_tstr copy = *s;
    copy.is_markup = is_markup;
    return new_str(vm, copy, ret);
}

/* Counted once and kept: loops over s[i] would be quadratic twice over. */
size_t ech_tstr_chars(ech_tstr *const s)
{
    if (s->n_chars == SIZE_MAX) {
        size_t n = 0;
        for (size_t i = 0; i < s->len; i++) {
            n += ((uint8_t)s->ptr[i] & 0xc0) != 0x80;
        }
        s->n_chars = n;
    }
    return s->n_chars;
}

size_t ech_tstr_byte_of(ech_tstr *const s, const size_t i)
{
    if (ech_tstr_chars(s) == s->len) return i;
    size_t at = 0;
    for (size_t left = i; at < s->len && left > 0; left--) {
        at++;
        while (at < s->len && ((uint8_t)s->ptr[at] & 0xc0) == 0x80) {
            at++;
        }
    }
    return at;
}

/* ---- the builder ---- */

/* Room for len more bytes. What is already there moves to larger memory, begun afresh. */
static ech_status reserve(ech_tbuild *const b, const size_t len)
{
    const size_t have = ech_tbuild_len(b);
    if (b->max_len != 0 && (have > b->max_len || len > b->max_len - have)) {
        return ech_tvm_fail(b->vm, ECH_ELIMIT, "the text is longer than the limit of %zu bytes",
                            b->max_len);
    }
    if (b->mem != NULL && len <= b->mem->cap - b->mem->used) return ECH_OK;
    if (len > SIZE_MAX / 8) return ech_tvm_no_memory(b->vm, SIZE_MAX);
    const size_t cap = have + len < 48 ? 64 : (have + len) * 2;
    ech_tmem *mem;
    ECH_TRY(ech_tvm_alloc(b->vm, 1, sizeof *mem, &mem));
    ECH_TRY(ech_tvm_alloc(b->vm, cap, 1, &mem->data));
    ECH_TRY(ech_tvm_alloc(b->vm, cap, 1, &mem->origin));
    if (have > 0) {
        memcpy(mem->data, b->mem->data + b->start, have);
        memcpy(mem->origin, b->mem->origin + b->start, have);
    }
    mem->used = have;
    mem->cap = cap;
    b->mem = mem;
    b->start = 0;
    return ECH_OK;
}

/* Bytes are charged by 64, so that one step buys about as much work here as anywhere. */
ech_status ech_tbuild_add(ech_tbuild *const b, const char *const ptr, const size_t len,
                          const bool is_data)
{
    if (len == 0) return ECH_OK;
    ECH_TRY(reserve(b, len));
    ECH_TRY(ech_tvm_charge(b->vm, len / 64));
    memcpy(b->mem->data + b->mem->used, ptr, len);
    memset(b->mem->origin + b->mem->used, is_data, len);
    b->mem->used += len;
    return ECH_OK;
}

ech_status ech_tbuild_sub(ech_tbuild *const b, const ech_tstr *const s, const size_t from,
                          const size_t len)
{
    if (len == 0) return ECH_OK;
    if (s->origin == NULL) return ech_tbuild_add(b, s->ptr + from, len, s->is_data);
    ECH_TRY(reserve(b, len));
    ECH_TRY(ech_tvm_charge(b->vm, len / 64));
    memcpy(b->mem->data + b->mem->used, s->ptr + from, len);
    memcpy(b->mem->origin + b->mem->used, s->origin + from, len);
    b->mem->used += len;
    return ECH_OK;
}

ech_status ech_tbuild_str(ech_tbuild *const b, const ech_tstr *const s)
{
    return ech_tbuild_sub(b, s, 0, s->len);
}

ech_status ech_tbuild_cp(ech_tbuild *const b, const uint32_t cp, const bool is_data)
{
    char bytes[4];
    const int n = ech_utf8_encode(cp, bytes);
    if (n == 0) return ech_tvm_raise(b->vm, "U+%04X is not a character", (unsigned)cp);
    return ech_tbuild_add(b, bytes, (size_t)n, is_data);
}

ech_status ech_tbuild_fill(ech_tbuild *const b, const char c, const size_t n, const bool is_data)
{
    if (n == 0) return ECH_OK;
    ECH_TRY(reserve(b, n));
    ECH_TRY(ech_tvm_charge(b->vm, n / 64));
    memset(b->mem->data + b->mem->used, c, n);
    memset(b->mem->origin + b->mem->used, is_data, n);
    b->mem->used += n;
    return ECH_OK;
}

/*
 * The memory stays with the text, so that `s = s ~ x` may go on in it; the builder is empty after.
 */
ech_status ech_tbuild_done(ech_tbuild *const b, ech_tval *const ret)
{
    if (b->mem == NULL) return ech_tv_lit(b->vm, "", ret);
    const ech_tstr s = {
        .ptr = b->mem->data + b->start,
        .origin = b->mem->origin + b->start,
        .len = ech_tbuild_len(b),
        .n_chars = SIZE_MAX,
        .grow = b->mem,
    };
    b->mem = NULL;
    b->start = 0;
    return new_str(b->vm, s, ret);
}

/*
 * A text whose memory nobody has written behind can grow in place: the loop that appends to one
 * variable, which most templates are, takes time linear in its text. A second text that starts
 * from the same end finds `used` moved on, and copies.
 */
static bool ends_its_memory(const ech_tstr *const s)
{
    return s->grow != NULL && s->ptr + s->len == s->grow->data + s->grow->used;
}

ech_status ech_tstr_concat(ech_tvm *const vm, const ech_tstr *const a, const ech_tstr *const b,
                           ech_tval *const ret)
{
    ech_tbuild build = { .vm = vm };
    if (ends_its_memory(a) && b->len <= a->grow->cap - a->grow->used) {
        build.mem = a->grow;
        build.start = (size_t)(a->ptr - a->grow->data);
    } else {
        ECH_TRY(reserve(&build, a->len + b->len));
        ECH_TRY(ech_tbuild_str(&build, a));
    }
    ECH_TRY(ech_tbuild_str(&build, b));
    return ech_tbuild_done(&build, ret);
}
