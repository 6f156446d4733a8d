/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The executor as a border: bytes that are no sound program, tasks that bind too little, rows that
 * point outside, are errors that say what; and stopping a run between operations.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/chip/toy.h"
#include "tests/unit/test.h"

static const toy_shape shape = {
    .hidden = 32,
    .n_layers = 2,
    .n_heads = 4,
    .n_kv_heads = 2,
    .head_dim = 16,
    .ffn = 48,
    .vocab = 50,
    .max_rows = 8,
    .max_positions = 100,
    .is_qwen = true,
};

static toy t;
static ech_exec *exec;

static int open_all(void **state)
{
    (void)state;
    ech_error err;
    toy_init(&t, &shape, 7);
    const ech_exec_options o = {
        .n_threads = 2,
        .arena_bytes = ech_program_arena_bytes(t.program, t.program_len),
    };
    return ech_exec_create(&exec, &o, &err);
}

static int close_all(void **state)
{
    (void)state;
    ech_exec_destroy(&exec);
    toy_fini(&t);
    return 0;
}

static void *copy_of(const void *const bytes, const size_t len)
{
    void *const copy = malloc(len);
    memcpy(copy, bytes, len);
    return copy;
}

static void damaged_programs_are_refused(void **state)
{
    (void)state;
    ech_error err;
    char *const p = copy_of(t.program, t.program_len);
    assert_int_equal(ech_exec_load(exec, p, t.program_len, &err), ECH_OK);
    for (size_t i = 0; i < t.program_len; i++) {
        p[i] ^= 0x04;
        assert_int_equal(ech_exec_load(exec, p, t.program_len, &err), ECH_EFORMAT);
        p[i] ^= 0x04;
    }
    for (size_t len = 0; len < t.program_len; len += 7)
        assert_int_equal(ech_exec_load(exec, p, len, &err), ECH_EFORMAT);
    free(p);
}

/*
 * With the checksum made right again, a changed program is either refused or safe to run: every
 * 32-bit word is replaced by several values, and what still loads is run (ASan looks on).
 */
static void changed_programs_are_refused_or_harmless(void **state)
{
    (void)state;
    static const uint32_t values[] = { 0, 1, 7, 64, 0x7fffffff, 0xffffffff, 0x10000 };
    ech_error err;
    toy changed = t;
    uint32_t n_loaded = 0, n_tried = 0;
    const int32_t ids[2] = { 3, 4 };
    toy_run r;
    toy_run_init(&r, &t, 2, 1, ECH_ISA_AUTO);
    changed.program = copy_of(t.program, t.program_len);
    r.t = &changed;
    for (size_t at = sizeof(ech_program_head); at + 4 <= t.program_len; at += 4)
        for (size_t v = 0; v < sizeof(values) / sizeof(values[0]); v++) {
            memcpy((char *)changed.program + at, &values[v], 4);
            ech_program_seal(changed.program, t.program_len, ECH_PROGRAM_FORWARD);
            n_tried++;
            if (ech_exec_load(r.exec, changed.program, t.program_len, &err) == ECH_OK) {
                n_loaded++;
                const ech_forward_header *const h = changed.program;
                const ech_kv_shape kv = { h->n_layers, h->n_kv_heads, h->head_dim,
                                          (ech_kv_type)h->kv_type };
                /* The test's own tensors must be large enough for what the header now says. */
                if (h->vocab <= shape.vocab && ech_kv_page_bytes(&kv) <= t.page_bytes &&
                    h->image_bytes <= t.image_bytes && h->max_rows >= 2 && h->max_logits >= 2)
                    (void)toy_run_try(&r, ids, 0, 2, &err);
            }
            memcpy((char *)changed.program + at, (const char *)t.program + at, 4);
        }
    printf("  %u of %u changed programs load\n", n_loaded, n_tried);
    free(changed.program);
    toy_run_fini(&r);
}

static void changed_pack_programs_are_refused_or_harmless(void **state)
{
    (void)state;
    static const uint32_t values[] = { 0, 1, 3, 64, 0x7fffffff, 0xffffffff };
    ech_error err;
    char *const p = copy_of(t.pack, t.pack_len);
    void *const image = aligned_alloc(4096, t.image_bytes);
    const ech_exec_tensor tensors[] = { { t.source, t.source_bytes }, { image, t.image_bytes } };
    const ech_exec_args args = { .tensors = tensors, .n_tensors = 2 };
    for (size_t at = sizeof(ech_program_head); at + 4 <= t.pack_len; at += 4)
        for (size_t v = 0; v < sizeof(values) / sizeof(values[0]); v++) {
            memcpy(p + at, &values[v], 4);
            ech_program_seal(p, t.pack_len, ECH_PROGRAM_PACK);
            if (ech_exec_load(exec, p, t.pack_len, &err) == ECH_OK)
                (void)ech_exec_run(exec, p, t.pack_len, &args, &err);
            memcpy(p + at, (const char *)t.pack + at, 4);
        }
    free(image);
    free(p);
}

/* A step with one row, of which each test breaks something. */
typedef struct step {
    ech_row row;
    uint32_t pages[1];
    int32_t sampled[1];
    ech_exec_tensor tensors[ECH_STEP_TENSORS];
    uint64_t scalars[ECH_STEP_SCALARS];
    ech_exec_args args;
    void *kv;
    float logits[50];
} step;

static void open_step(step *const s)
{
    *s = (step){ .row = { .id = 3, .logit_row = 0 }, .scalars = { 1, 1 } };
    s->kv = aligned_alloc(64, t.page_bytes);
    s->tensors[ECH_STEP_WEIGHTS] = (ech_exec_tensor){ t.image, t.image_bytes };
    s->tensors[ECH_STEP_ROWS] = (ech_exec_tensor){ &s->row, sizeof(s->row) };
    s->tensors[ECH_STEP_PAGES] = (ech_exec_tensor){ s->pages, sizeof(s->pages) };
    s->tensors[ECH_STEP_KV] = (ech_exec_tensor){ s->kv, t.page_bytes };
    s->tensors[ECH_STEP_SAMPLED] = (ech_exec_tensor){ s->sampled, sizeof(s->sampled) };
    s->tensors[ECH_STEP_LOGITS] = (ech_exec_tensor){ s->logits, sizeof(s->logits) };
    s->args = (ech_exec_args){ .tensors = s->tensors,
                               .n_tensors = ECH_STEP_TENSORS,
                               .scalars = s->scalars,
                               .n_scalars = ECH_STEP_SCALARS };
}

static void expect(step *const s, const ech_status want, const char *const word)
{
    ech_error err = { 0 };
    const ech_status rc = ech_exec_run(exec, t.program, t.program_len, &s->args, &err);
    if (rc != want || strstr(err.text, word) == NULL)
        fail_msg("%d \"%s\", expected %d and \"%s\"", rc, err.text, want, word);
    free(s->kv);
    open_step(s);
}

static void steps_that_do_not_fit_are_refused_by_name(void **state)
{
    (void)state;
    step s;
    open_step(&s);
    expect(&s, ECH_OK, "");
    s.args.n_tensors = 5;
    expect(&s, ECH_EINVAL, "tensors");
    s.scalars[ECH_STEP_N_ROWS] = 9;
    expect(&s, ECH_EINVAL, "9 rows");
    s.scalars[ECH_STEP_N_ROWS] = 0;
    expect(&s, ECH_EINVAL, "0 rows");
    s.scalars[ECH_STEP_N_LOGITS] = 0;
    expect(&s, ECH_EINVAL, "logit");
    for (int i = 0; i < ECH_STEP_TENSORS; i++) {
        if (i == ECH_STEP_SAMPLED) continue;
        s.tensors[i].bytes /= 2;
        expect(&s, ECH_EINVAL, "");
    }
    s.tensors[ECH_STEP_KV].ptr = (char *)s.kv + 4;
    expect(&s, ECH_EINVAL, "aligned");
    s.row.id = 50;
    expect(&s, ECH_EINVAL, "token 50");
    s.row.id = -2;
    expect(&s, ECH_EINVAL, "sampled id 1");
    s.row.id = INT32_MIN;
    expect(&s, ECH_EINVAL, "sampled id");
    s.row.id = -1;
    s.sampled[0] = -7;
    expect(&s, ECH_EINVAL, "token -7");
    s.row.pos = 100;
    expect(&s, ECH_EINVAL, "position 100");
    s.row.pos = 32;
    expect(&s, ECH_EINVAL, "page table");
    s.row.pages = UINT32_MAX;
    expect(&s, ECH_EINVAL, "page table");
    s.pages[0] = 1;
    expect(&s, ECH_EINVAL, "1 pages");
    s.row.logit_row = 1;
    expect(&s, ECH_EINVAL, "logit row 1");
    free(s.kv);
}

static void a_row_may_read_a_sampled_id(void **state)
{
    (void)state;
    float direct[50];
    step s;
    open_step(&s);
    ech_error err;
    assert_int_equal(ech_exec_run(exec, t.program, t.program_len, &s.args, &err), ECH_OK);
    memcpy(direct, s.logits, sizeof(direct));
    s.row.id = -1;
    s.sampled[0] = 3;
    assert_int_equal(ech_exec_run(exec, t.program, t.program_len, &s.args, &err), ECH_OK);
    assert_memory_equal(direct, s.logits, sizeof(direct));
    free(s.kv);
}

static bool stop_at(void *const ctx, const uint32_t step_idx)
{
    uint32_t *const left = ctx;
    (void)step_idx;
    return (*left)-- == 0;
}

static void a_run_stops_between_operations(void **state)
{
    (void)state;
    for (uint32_t after = 0; after < 12; after++) {
        step s;
        open_step(&s);
        ech_error err;
        uint32_t left = after;
        s.args.poll = stop_at;
        s.args.poll_ctx = &left;
        assert_int_equal(ech_exec_run(exec, t.program, t.program_len, &s.args, &err),
                         ECH_ECANCELLED);
        s.args.poll = NULL;
        assert_int_equal(ech_exec_run(exec, t.program, t.program_len, &s.args, &err), ECH_OK);
        free(s.kv);
    }
}

static void an_arena_too_small_is_named(void **state)
{
    (void)state;
    ech_exec *small = NULL;
    ech_error err;
    assert_int_equal(ech_exec_create(&small, &(ech_exec_options){ .arena_bytes = 100 }, &err),
                     ECH_OK);
    assert_int_equal(ech_exec_load(small, t.program, t.program_len, &err), ECH_ELIMIT);
    assert_non_null(strstr(err.text, "arena"));
    ech_exec_destroy(&small);
}

static void the_environment_narrows_the_kernels(void **state)
{
    (void)state;
    ech_exec *e = NULL;
    ech_error err;
    assert_int_equal(setenv("ECHELON_CPU", "ref", 1), 0);
    assert_int_equal(ech_exec_create(&e, &(ech_exec_options){ 0 }, &err), ECH_OK);
    assert_string_equal(ech_exec_isa_name(e), "ref");
    ech_exec_destroy(&e);
    assert_int_equal(setenv("ECHELON_CPU", "mmx", 1), 0);
    assert_int_equal(ech_exec_create(&e, &(ech_exec_options){ 0 }, &err), ECH_EINVAL);
    assert_non_null(strstr(err.text, "ECHELON_CPU"));
    assert_int_equal(unsetenv("ECHELON_CPU"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(damaged_programs_are_refused),
        cmocka_unit_test(changed_programs_are_refused_or_harmless),
        cmocka_unit_test(changed_pack_programs_are_refused_or_harmless),
        cmocka_unit_test(steps_that_do_not_fit_are_refused_by_name),
        cmocka_unit_test(a_row_may_read_a_sampled_id),
        cmocka_unit_test(a_run_stops_between_operations),
        cmocka_unit_test(an_arena_too_small_is_named),
        cmocka_unit_test(the_environment_narrows_the_kernels),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
