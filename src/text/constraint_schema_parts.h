/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the schema compiler share: the compilation in progress, and one function for
 * each kind of value. The constraint_schema_*.c files are one module; nothing else includes this.
 */
#ifndef ECH_TEXT_CONSTRAINT_SCHEMA_PARTS_H
#define ECH_TEXT_CONSTRAINT_SCHEMA_PARTS_H

#include <jansson.h>

#include "src/text/constraint_regex.h"
#include "src/text/constraint_schema.h"

/* How deep subschemas may nest, references and combinations counted. */
#define ECH_SCHEMA_MAX_NESTING 120
/* How many properties one object may have, how many values an enum. */
#define ECH_SCHEMA_MAX_LIST 20000u

/* A schema that $ref names, and the rule it became. */
typedef struct ech_schema_target {
    const json_t *schema; /* borrowed from root */
    uint32_t rule;
    bool is_open; /* being compiled: a reference to it is recursive */
} ech_schema_target;

typedef struct ech_schema {
    ech_cx_graph *g;
    const ech_constraint_options *options;
    ech_error *err;
    json_t *root;
    json_t *made; /* array that owns the schemas made by merging */
    ech_buf path; /* JSON pointer of the schema being compiled */
    int nesting;
    uint32_t work; /* schemas compiled so far, merged ones counted */
    ech_schema_target *targets;
    uint32_t n_targets, cap_targets;
    ech_cx space;     /* whitespace between tokens */
    ech_cx any_value; /* FAIL until asked for */
    ech_cx any_string;
    ech_cx any_object;
} ech_schema;

typedef enum ech_json_type {
    ECH_TYPE_NULL = 1,
    ECH_TYPE_BOOLEAN = 2,
    ECH_TYPE_OBJECT = 4,
    ECH_TYPE_ARRAY = 8,
    ECH_TYPE_NUMBER = 16, /* any number; implies INTEGER */
    ECH_TYPE_INTEGER = 32,
    ECH_TYPE_STRING = 64,
    ECH_TYPE_ALL = 127,
} ech_json_type;

/* ---- errors and the path ---- */

/* Fails at the path, or at its member key when key isn't NULL. why is a phrase. */
ech_status ech_schema_fail(ech_schema *s, ech_status code, const char *key, const char *why);
/* Appends a step to the path; the old length, for ech_schema_leave. */
size_t ech_schema_enter(ech_schema *s, const char *key, size_t len);
size_t ech_schema_enter_index(ech_schema *s, const char *key, size_t index);
void ech_schema_leave(ech_schema *s, size_t old_len);

/* ---- keywords ---- */

/* A member that is a count: *ret is left alone when it is absent. */
ech_status ech_schema_get_count(ech_schema *s, const json_t *schema, const char *key,
                                uint32_t *ret);
/* A bit set of ech_json_type; all of them when there is no `type`. */
ech_status ech_schema_get_types(ech_schema *s, const json_t *schema, unsigned *ret);

/* ---- compilation ---- */

ech_status ech_schema_value(ech_schema *s, const json_t *schema, ech_cx *ret);
ech_status ech_schema_any(ech_schema *s, ech_cx *ret);
ech_cx ech_schema_any_string(ech_schema *s);
ech_status ech_schema_object(ech_schema *s, const json_t *schema, ech_cx *ret);
ech_status ech_schema_array(ech_schema *s, const json_t *schema, ech_cx *ret);
ech_status ech_schema_string(ech_schema *s, const json_t *schema, ech_cx *ret);
/* INTEGER or NUMBER. */
ech_status ech_schema_number(ech_schema *s, const json_t *schema, ech_json_type type, ech_cx *ret);
/* enum and const: those values that the rest of the schema admits. */
ech_status ech_schema_literals(ech_schema *s, const json_t *schema, ech_cx *ret);
/* A JSON string spelled with as few escapes as possible, quotes included. */
ech_status ech_schema_quote(ech_schema *s, ech_str text, ech_buf *out);

/* The subschema that a $ref names; an error when there is none. */
ech_status ech_schema_resolve(ech_schema *s, const char *ref, const json_t **ret);
/* The automaton of a `pattern`; key is where to report errors. */
ech_status ech_schema_pattern(ech_schema *s, const json_t *pattern, const char *key,
                              ech_regex_reading reading, ech_dfa **ret_dfa);
/* The automaton of a `format`. */
ech_status ech_schema_format(ech_schema *s, const char *name, ech_dfa **ret_dfa);

/*
 * One schema that says what a and b say together; it may have an allOf for what could not be
 * joined yet. Owned by s->made.
 */
ech_status ech_schema_merge(ech_schema *s, const json_t *a, const json_t *b, const json_t **ret);
/* Whether no value satisfies both; false when that can't be shown. */
bool ech_schema_disjoint(ech_schema *s, const json_t *a, const json_t *b);
/* 1: the value satisfies the schema, 0: it doesn't, -1: can't tell. */
int ech_schema_admits(ech_schema *s, const json_t *schema, const json_t *value);
/* Equal as JSON values: 1 and 1.0 are. */
bool ech_json_same(const json_t *a, const json_t *b);

#endif
