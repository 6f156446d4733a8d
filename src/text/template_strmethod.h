/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of str's methods share. The table of methods is in template_strmethod.c; a method
 * that stands in another file has ech_tstr_m_ before its Python name.
 */
#ifndef ECH_TEXT_TEMPLATE_STRMETHOD_H
#define ECH_TEXT_TEMPLATE_STRMETHOD_H

#include "src/base/utf8.h"
#include "src/text/template_builtin.h"

/* The text a method was called on; the caller has looked at its kind. */
static inline ech_tstr *self_of(const ech_tcall *const c)
{
    return c->self.as.str;
}

/* Python's methods take None for "not given" wherever they have a default. */
static inline bool given(const ech_tval v)
{
    return v.kind != ECH_T_ABSENT && v.kind != ECH_T_NONE;
}

/*
 * The bytes of the character at `at`. Texts are valid UTF-8; 1 for what isn't keeps a walk moving
 * should one ever not be.
 */
static inline size_t char_at(const ech_tstr *const s, const size_t at, uint32_t *const ret)
{
    const int n = ech_utf8_decode(s->ptr + at, s->len - at, ret);
    return n > 0 ? (size_t)n : 1;
}

/* Where the character before byte `at` begins. */
static inline size_t char_before(const ech_tstr *const s, size_t at)
{
    do {
        at--;
    } while (at > 0 && ((uint8_t)s->ptr[at] & 0xc0) == 0x80);
    return at;
}

/* The last place of what in s[from, end), in bytes, or SIZE_MAX. */
size_t ech_tstr_find_last(const ech_tstr *s, size_t from, size_t end, const ech_tstr *what);

ech_status ech_tstr_m_split(ech_tvm *vm, ech_tcall *c, ech_tval *ret);
ech_status ech_tstr_m_rsplit(ech_tvm *vm, ech_tcall *c, ech_tval *ret);
ech_status ech_tstr_m_splitlines(ech_tvm *vm, ech_tcall *c, ech_tval *ret);
ech_status ech_tstr_m_join(ech_tvm *vm, ech_tcall *c, ech_tval *ret);
ech_status ech_tstr_m_partition(ech_tvm *vm, ech_tcall *c, ech_tval *ret);
ech_status ech_tstr_m_rpartition(ech_tvm *vm, ech_tcall *c, ech_tval *ret);

#endif
