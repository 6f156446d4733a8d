/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `echelon inspect`: what a model is made of, read from its headers; no weight is loaded.
 *
 * Invariant: numbers come from the library's own account of the model, so that what is printed
 * is what loading would do. One process, no engine, no fork: it runs on a machine too small for
 * the model. Main thread. Warnings go to standard error, so that output can be compared.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "echelon/model.h"
#include "src/cli/commands.h"
#include "src/cli/json_out.h"
#include "src/cli/load_options.h"

static bool as_json;
static bool all_tensors;

/*
 * Tensors of one type in the files, summed. In the order in which the files have them: the first
 * is mostly the main one.
 */
typedef struct type_sum {
    const char *type;
    uint32_t n;
    uint64_t bytes;
    uint64_t packed_bytes;
} type_sum;

/* More than formats have; tensors of further types would be left out of the table. */
#define TYPES_MAX 32u

/*
 * Decimal units, as file sizes are given. The buffer is the caller's: two sizes in one line need
 * two.
 */
static const char *size_text(const uint64_t bytes, char *const buf, const size_t cap)
{
    static const char *const UNITS[] = { "B", "kB", "MB", "GB", "TB" };
    double x = (double)bytes;
    size_t unit = 0;
    while (x >= 1000.0 && unit + 1 < sizeof UNITS / sizeof UNITS[0]) {
        x /= 1000.0;
        unit++;
    }
    (void)snprintf(buf, cap, unit == 0 ? "%.0f %s" : "%.2f %s", x, UNITS[unit]);
    return buf;
}

/* The index is always good here; names in it live as long as the model. */
static ech_model_tensor tensor_at(const ech_model *const m, const uint32_t idx)
{
    ech_model_tensor t = { 0 };
    (void)ech_model_tensor_at(m, idx, &t);
    return t;
}

/* A walk for each tensor: a few hundred of them, a handful of types. */
static uint32_t sum_types(const ech_model *const m, type_sum *const sums)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < ech_model_n_tensors(m); i++) {
        const ech_model_tensor t = tensor_at(m, i);
        uint32_t at = 0;
        while (at < n && strcmp(sums[at].type, t.type) != 0) {
            at++;
        }
        if (at == TYPES_MAX) continue;
        if (at == n) sums[n++] = (type_sum){ .type = t.type };
        sums[at].n++;
        sums[at].bytes += t.bytes;
        sums[at].packed_bytes += t.packed_bytes;
    }
    return n;
}

/*
 * Parameters that are multiplied per token are those that cost time; the embedding's rows are
 * only looked up.
 */
static void print_summary(const ech_model_info *const i)
{
    char a[32];
    char b[32];
    (void)printf("model         %s\n", i->path);
    (void)printf("architecture  %s, %s in %u file%s\n", i->architecture, i->format, i->n_files,
                 i->n_files == 1 ? "" : "s");
    (void)printf("shape         %u layers, hidden %u, ffn %u, %u heads of %u, %u KV heads\n",
                 i->n_layers, i->hidden, i->ffn, i->n_heads, i->head_dim, i->n_kv_heads);
    (void)printf("vocabulary    %u, %s head\n", i->vocab, i->tied ? "tied" : "untied");
    (void)printf("context       %u positions, rotary scaling %s\n", i->max_context, i->rope);
    (void)printf("parameters    %.2f M, %.2f M of them multiplied per token\n",
                 (double)i->n_params / 1e6, (double)i->n_params_step / 1e6);
    (void)printf("weights       %s in %u tensors, packed %s\n",
                 size_text(i->source_bytes, a, sizeof a), i->n_tensors,
                 size_text(i->packed_bytes, b, sizeof b));
}

/*
 * What decides the speed of generation: bytes that each step must read. The KV types come in the
 * library's order until it knows no further.
 */
static void print_step(const ech_model *const m, const ech_model_info *const i)
{
    char a[32];
    char b[32];
    const uint64_t token = ech_model_kv_bytes_per_token(m, ECH_KV_F16);
    (void)printf("a step reads  %s of weights, and per sequence its KV: %s at %u positions (f16)\n",
                 size_text(i->step_bytes, a, sizeof a),
                 size_text(token * i->max_context, b, sizeof b), i->max_context);
    (void)printf("KV per token ");
    for (int type = 0; ech_model_kv_bytes_per_token(m, (ech_kv_type)type) > 0; type++) {
        (void)printf(" %s %" PRIu64 " B", ech_kv_type_name((ech_kv_type)type),
                     ech_model_kv_bytes_per_token(m, (ech_kv_type)type));
    }
    (void)printf("\n");
}

/* In the files and packed side by side: the difference is what loading makes of them. */
static void print_types(const ech_model *const m)
{
    type_sum sums[TYPES_MAX];
    const uint32_t n = sum_types(m, sums);
    (void)printf("\n%-10s %8s %12s %12s\n", "type", "tensors", "in files", "packed");
    for (uint32_t i = 0; i < n; i++) {
        char a[32];
        char b[32];
        (void)printf("%-10s %8u %12s %12s\n", sums[i].type, sums[i].n,
                     size_text(sums[i].bytes, a, sizeof a),
                     size_text(sums[i].packed_bytes, b, sizeof b));
    }
}

static void shape_text(const ech_model_tensor *const t, char *const buf, const size_t cap)
{
    size_t len = 0;
    buf[0] = '\0';
    for (uint32_t i = 0; i < t->n_dims && len < cap; i++) {
        const int n = snprintf(buf + len, cap - len, "%s%" PRIu64, i == 0 ? "" : " x ", t->dims[i]);
        len += n > 0 ? (size_t)n : 0;
    }
}

/* "row": a step reads single rows of it, as of an embedding. */
static void print_tensors(const ech_model *const m)
{
    (void)printf("\n%-52s %-8s %-8s %16s %12s %5s\n", "tensor", "type", "packed", "shape", "bytes",
                 "step");
    for (uint32_t i = 0; i < ech_model_n_tensors(m); i++) {
        const ech_model_tensor t = tensor_at(m, i);
        char shape[96];
        shape_text(&t, shape, sizeof shape);
        (void)printf("%-52s %-8s %-8s %16s %12" PRIu64 " %5s\n", t.name, t.type, t.packed_type,
                     shape, t.bytes, t.read_per_step ? "all" : "row");
    }
}

static json_t *tensor_json(const ech_model_tensor *const t)
{
    json_t *const shape = json_array();
    for (uint32_t i = 0; i < t->n_dims; i++) {
        (void)json_array_append_new(shape, json_integer((json_int_t)t->dims[i]));
    }
    return json_pack("{s:s, s:s, s:s, s:s, s:o, s:I, s:I, s:I, s:b}", "name", t->name, "file",
                     t->file, "type", t->type, "packed_type", t->packed_type, "shape", shape,
                     "offset", (json_int_t)t->offset, "bytes", (json_int_t)t->bytes, "packed_bytes",
                     (json_int_t)t->packed_bytes, "read_per_step", t->read_per_step);
}

/*
 * Every tensor is in it, with or without --tensors: a program can leave out what it doesn't
 * want.
 */
static json_t *model_json(const ech_model *const m, const ech_model_info *const i)
{
    json_t *const tensors = json_array();
    json_t *const kv = json_object();
    json_t *const warnings = json_array();
    for (uint32_t k = 0; k < ech_model_n_tensors(m); k++) {
        const ech_model_tensor t = tensor_at(m, k);
        (void)json_array_append_new(tensors, tensor_json(&t));
    }
    for (int type = 0; ech_model_kv_bytes_per_token(m, (ech_kv_type)type) > 0; type++) {
        const uint64_t bytes = ech_model_kv_bytes_per_token(m, (ech_kv_type)type);
        (void)json_object_set_new(kv, ech_kv_type_name((ech_kv_type)type),
                                  json_integer((json_int_t)bytes));
    }
    for (uint32_t k = 0; ech_model_warning_at(m, k) != NULL; k++) {
        (void)json_array_append_new(warnings, json_string(ech_model_warning_at(m, k)));
    }
    return json_pack("{s:s, s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:b, s:s, s:I, "
                     "s:I, s:I, s:I, s:I, s:o, s:o, s:o}",
                     "path", i->path, "architecture", i->architecture, "format", i->format, "files",
                     i->n_files, "layers", i->n_layers, "hidden", i->hidden, "ffn", i->ffn, "heads",
                     i->n_heads, "kv_heads", i->n_kv_heads, "head_dim", i->head_dim, "vocab",
                     i->vocab, "context", i->max_context, "tied", i->tied, "rope", i->rope,
                     "parameters", (json_int_t)i->n_params, "parameters_per_token",
                     (json_int_t)i->n_params_step, "source_bytes", (json_int_t)i->source_bytes,
                     "packed_bytes", (json_int_t)i->packed_bytes, "step_bytes",
                     (json_int_t)i->step_bytes, "kv_bytes_per_token", kv, "warnings", warnings,
                     "tensors", tensors);
}

/* Paths may hold bytes that JSON can't: then there is no object, and that is an error. */
static int print_json(const ech_model *const m, const ech_model_info *const i)
{
    return ech_print_json(model_json(m, i), i->path);
}

static int print_text(const ech_model *const m, const ech_model_info *const i)
{
    print_summary(i);
    print_step(m, i);
    print_types(m);
    if (all_tensors) print_tensors(m);
    for (uint32_t k = 0; ech_model_warning_at(m, k) != NULL; k++) {
        (void)fprintf(stderr, "echelon: warning: %s\n", ech_model_warning_at(m, k));
    }
    return ECH_EXIT_OK;
}

/* Nothing is written before the model is open, so that a failure leaves no half output. */
static int run(const int argc, char **const argv)
{
    if (argc > 1) return ech_usage_error("inspect takes one MODEL, not also '%s'", argv[1]);
    ech_model *m = NULL;
    ech_error err;
    const ech_model_options options = { .struct_size = sizeof options,
                                        .quantize = ech_cli_load.quantize };
    const char *const path = argc > 0 ? argv[0] : NULL;
    if (ech_model_open_with(&m, path, &options, &err) != ECH_OK) return ech_report(&err);
    ech_model_info info;
    ech_model_get_info(m, &info);
    const int rc = as_json ? print_json(m, &info) : print_text(m, &info);
    ech_model_close(&m);
    return rc;
}

static const ech_option OPTIONS[] = {
    { "json", 0, ECH_OPT_FLAG, &as_json, NULL, "print one JSON object, every tensor in it", 0, 0,
      NULL },
    { "tensors", 0, ECH_OPT_FLAG, &all_tensors, NULL, "list every tensor", 0, 0, NULL },
    { "quantize", 0, ECH_OPT_CALL, NULL, "TYPE", "sizes as if packed as q8, q6, q4 or bf16", 0, 0,
      ech_cli_take_quantize },
};

const ech_command ech_cmd_inspect = {
    "inspect",
    "[MODEL]",
    "what a model is made of: shape, types, sizes, what a step reads",
    "echelon inspect models/tale\nechelon inspect --json models/tale",
    OPTIONS,
    sizeof OPTIONS / sizeof OPTIONS[0],
    run,
};
