/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arrays: prefixItems (or draft 7's array of items) each in its place, then any number of items.
 * Counts are counters.
 *
 *     [ ws ]                                   when minItems is 0
 *     [ ws item (ws , ws item){…} ws ]
 */
#include "src/text/constraint_schema_parts.h"

typedef struct array_rules {
    const json_t *prefix; /* array of schemas or NULL */
    size_t n_prefix;
    const json_t *items; /* schema of the others; NULL: anything */
    uint32_t min, max;
} array_rules;

static ech_status get_rules(ech_schema *const s, const json_t *const schema, array_rules *const r)
{
    *r = (array_rules){ .prefix = json_object_get(schema, "prefixItems"),
                        .items = json_object_get(schema, "items"),
                        .max = ECH_CX_INF };
    const char *key = "prefixItems";
    if (json_is_array(r->items)) { /* draft 7 */
        if (r->prefix != NULL) {
            return ech_schema_fail(s, ECH_EFORMAT, "items",
                                   "it must be a schema beside prefixItems");
        }
        key = "items";
        r->prefix = r->items;
        r->items = json_object_get(schema, "additionalItems");
    }
    if (r->prefix != NULL && !json_is_array(r->prefix)) {
        return ech_schema_fail(s, ECH_EFORMAT, key, "it must be an array of schemas");
    }
    r->n_prefix = json_array_size(r->prefix);
    if (r->n_prefix > ECH_SCHEMA_MAX_LIST / 20) {
        return ech_schema_fail(s, ECH_ELIMIT, key, "it has over 1000 schemas");
    }
    ECH_TRY(ech_schema_get_count(s, schema, "minItems", &r->min));
    return ech_schema_get_count(s, schema, "maxItems", &r->max);
}

/* Items after the prefix, first being whether the prefix is empty; count items before it. */
static ech_status rest_expr(ech_schema *const s, const array_rules *const r, const ech_cx separator,
                            ech_cx *const ret)
{
    ech_cx item = ECH_CX_FAIL;
    const uint32_t done = (uint32_t)r->n_prefix;
    if (r->items == NULL)
        ECH_TRY(ech_schema_any(s, &item));
    else if (r->max > done) {
        const size_t old = ech_schema_enter(s, "items", 5);
        ECH_TRY(ech_schema_value(s, r->items, &item));
        ech_schema_leave(s, old);
    }
    const uint32_t min = r->min > done ? r->min - done : 0;
    const uint32_t max = r->max == ECH_CX_INF ? r->max : r->max > done ? r->max - done : 0;
    if (done > 0) {
        *ret = ech_cx_repeat(s->g, ech_cx_seq2(s->g, separator, item), min, max);
        return ECH_OK;
    }
    const ech_cx more =
        ech_cx_repeat(s->g, ech_cx_seq2(s->g, separator, item), min > 1 ? min - 1 : 0,
                      max == ECH_CX_INF ? max
                      : max > 0         ? max - 1
                                        : 0);
    const ech_cx some = max == 0 ? ECH_CX_FAIL : ech_cx_seq2(s->g, item, more);
    *ret = min == 0 ? ech_cx_opt(s->g, some) : some;
    return ECH_OK;
}

/* Places i and later of the prefix, from the last to the first: each may be the end. */
static ech_status prefix_expr(ech_schema *const s, const array_rules *const r,
                              const ech_cx separator, const ech_cx rest, ech_cx *const ret)
{
    ech_cx tail = rest;
    for (size_t i = r->n_prefix; i > 0; i--) {
        const size_t place = i - 1;
        ech_cx item = ECH_CX_FAIL;
        if (place < r->max) {
            const size_t old = ech_schema_enter_index(s, "prefixItems", place);
            ECH_TRY(ech_schema_value(s, json_array_get(r->prefix, place), &item));
            ech_schema_leave(s, old);
        }
        const ech_cx lead = place == 0 ? ECH_CX_EMPTY : separator;
        tail = ech_cx_seq3(s->g, lead, item, tail);
        if (place >= r->min) tail = ech_cx_opt(s->g, tail);
        if (place % 32 == 31) tail = ech_cx_shared(s->g, tail); /* bounds the depth of nesting */
    }
    *ret = tail;
    return ECH_OK;
}

ech_status ech_schema_array(ech_schema *const s, const json_t *const schema, ech_cx *const ret)
{
    array_rules r;
    ECH_TRY(get_rules(s, schema, &r));
    ech_cx_graph *const g = s->g;
    const ech_cx separator = ech_cx_seq3(g, s->space, ech_cx_range(g, ',', ','), s->space);
    ech_cx rest = ECH_CX_FAIL, list = ECH_CX_FAIL;
    ECH_TRY(rest_expr(s, &r, separator, &rest));
    ECH_TRY(prefix_expr(s, &r, separator, rest, &list));
    /* "[ ws ]" has one whitespace, not two around nothing. */
    const ech_cx open = ech_cx_seq2(g, ech_cx_range(g, '[', '['), s->space);
    const ech_cx close = ech_cx_range(g, ']', ']');
    const ech_cx filled = ech_cx_seq2(g, ech_cx_nonempty(g, list), s->space);
    const ech_cx body = r.min == 0 ? ech_cx_opt(g, filled) : filled;
    *ret = ech_cx_seq3(g, open, body, close);
    return ech_cx_graph_check(g, s->err);
}
