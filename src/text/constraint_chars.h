/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sets of code points, and how a character of a set is written: as UTF-8, or as the content of a
 * JSON string, where it may be UTF-8, a short escape, \uXXXX or a surrogate pair. Surrogates are
 * in no set once it is written. Pure.
 */
#ifndef ECH_TEXT_CONSTRAINT_CHARS_H
#define ECH_TEXT_CONSTRAINT_CHARS_H

#include "src/text/constraint_expr.h"

#define ECH_CP_MAX 0x10FFFFu

typedef struct ech_cp_range {
    uint32_t first, last;
} ech_cp_range;

/* Ranges in any order while it is built; ech_cset_tidy sorts and joins them. */
typedef struct ech_cset {
    ech_cp_range *ranges;
    uint32_t n, cap;
    bool oom; /* an addition failed */
} ech_cset;

typedef enum ech_spelling {
    ECH_SPELL_RAW,  /* UTF-8 */
    ECH_SPELL_JSON, /* between the quotes of a JSON string */
} ech_spelling;

void ech_cset_fini(ech_cset *s);
void ech_cset_add(ech_cset *s, uint32_t first, uint32_t last);
void ech_cset_add_all(ech_cset *s, const ech_cset *other);
void ech_cset_tidy(ech_cset *s);
/* The complement of a tidy set, in place. */
void ech_cset_negate(ech_cset *s);
bool ech_cset_has(const ech_cset *s, uint32_t cp); /* tidy */
/* Categories that were asked for: each is a walk over all code points, so it is made once. */
typedef struct ech_categories {
    struct {
        uint32_t bits; /* the two-letter categories in it */
        ech_cset set;
    } made[40]; /* as many as there are names for different ones */
    uint32_t n;
} ech_categories;

/* Adds a Unicode general category: "L", "Lu", "Letter", … false when there is none of the name. */
bool ech_cset_add_category(ech_cset *s, ech_categories *known, const char *name, size_t len);
void ech_categories_fini(ech_categories *c);

/* One character of a tidy set. */
ech_cx ech_cx_chars(ech_cx_graph *g, const ech_cset *s, ech_spelling spelling);
/* The two halves of ECH_SPELL_JSON: as it is, where that is allowed; as an escape. */
ech_cx ech_cx_json_plain(ech_cx_graph *g, const ech_cset *s);
ech_cx ech_cx_json_escape(ech_cx_graph *g, const ech_cset *s);
/* Any character. */
ech_cx ech_cx_any_char(ech_cx_graph *g, ech_spelling spelling);

#endif
