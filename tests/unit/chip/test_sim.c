/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sim chip: rules strike when and where they say, its model depends on every id and page and
 * on nothing else, and chip-local memory refuses addresses that aren't its own.
 */
#include "tests/unit/test.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/chip/sampler_program.h"
#include "src/chip/sim/sim.h"
#include "src/chip/sim/sim_memory.h"
#include "tests/unit/chip/toy.h"

enum { PAGES = 8, SLOTS = 4, MAX = 100 };

/* A step's tensors over a toy model's program, and the chip. */
typedef struct bench {
    toy toy;
    ech_sim *sim;
    ech_sim_program *forward;
    ech_row rows[MAX];
    uint32_t tables[2 * PAGES];
    char *kv;
    int32_t sampled[SLOTS];
    float *logits;
    ech_exec_tensor tensors[ECH_STEP_TENSORS];
    uint64_t scalars[ECH_STEP_SCALARS];
    ech_exec_args args;
} bench;

static void bench_open(bench *const b, const ech_sim_options *const o, const uint32_t generation)
{
    assert_int_equal(ech_sim_create(&b->sim, o, o != NULL ? sizeof *o : 0, generation, NULL),
                     ECH_OK);
    assert_int_equal(ech_sim_load(b->sim, b->toy.program, b->toy.program_len, &b->forward, NULL),
                     ECH_OK);
}

static void bench_close(bench *const b)
{
    ech_sim_unload(&b->forward);
    ech_sim_destroy(&b->sim);
}

static int setup(void **state)
{
    bench *const b = calloc(1, sizeof *b);
    const toy_shape shape = { .hidden = 32,
                              .n_layers = 1,
                              .n_heads = 2,
                              .n_kv_heads = 1,
                              .head_dim = 16,
                              .ffn = 32,
                              .vocab = 50,
                              .max_rows = MAX,
                              .max_positions = 96,
                              .source = ECH_SRC_F32,
                              .type = ECH_PACK_F32,
                              .kv = ECH_KV_F32,
                              .compute = ECH_COMPUTE_F32 };
    toy_init(&b->toy, &shape, 1);
    b->kv = aligned_alloc(64, PAGES * b->toy.page_bytes);
    memset(b->kv, 0, PAGES * b->toy.page_bytes);
    b->logits = calloc((size_t)MAX * shape.vocab, sizeof *b->logits);
    for (uint32_t i = 0; i < 2 * PAGES; i++) {
        b->tables[i] = i % PAGES;
    }
    const ech_exec_tensor tensors[ECH_STEP_TENSORS] = {
        [ECH_STEP_ROWS] = { b->rows, sizeof b->rows },
        [ECH_STEP_PAGES] = { b->tables, sizeof b->tables },
        [ECH_STEP_KV] = { b->kv, PAGES * b->toy.page_bytes },
        [ECH_STEP_SAMPLED] = { b->sampled, sizeof b->sampled },
        [ECH_STEP_LOGITS] = { b->logits, (size_t)MAX * shape.vocab * sizeof *b->logits },
    };
    memcpy(b->tensors, tensors, sizeof tensors);
    b->args = (ech_exec_args){ .tensors = b->tensors,
                               .n_tensors = ECH_STEP_TENSORS,
                               .scalars = b->scalars,
                               .n_scalars = ECH_STEP_SCALARS };
    *state = b;
    return 0;
}

static int teardown(void **state)
{
    bench *const b = *state;
    toy_fini(&b->toy);
    free(b->kv);
    free(b->logits);
    free(b);
    return 0;
}

/* Rows of positions first … first + n - 1 with ids f(position); the last wants logits. */
static ech_status step(bench *const b, const uint32_t first, const uint32_t n, const uint32_t table)
{
    for (uint32_t i = 0; i < n; i++) {
        b->rows[i] = (ech_row){ .pos = first + i,
                                .id = (int32_t)((first + i) * 7 % 50),
                                .pages = table,
                                .logit_row = i + 1 == n ? 0 : -1 };
    }
    b->scalars[ECH_STEP_N_ROWS] = n;
    b->scalars[ECH_STEP_N_LOGITS] = 1;
    return ech_sim_run(b->sim, b->forward, &b->args, NULL);
}

static void logits_depend_on_ids_and_pages_alone(void **state)
{
    bench *const b = *state;
    float whole[50];
    bench_open(b, NULL, 0);
    assert_int_equal(step(b, 0, 90, 0), ECH_OK);
    memcpy(whole, b->logits, sizeof whole);
    for (uint32_t i = 0; i < 90; i += 9) { /* in chunks, by another table over the same pages */
        assert_int_equal(step(b, i, 9, PAGES), ECH_OK);
    }
    assert_memory_equal(whole, b->logits, sizeof whole);
    assert_int_equal(step(b, 89, 1, 0), ECH_OK); /* again: the same */
    assert_memory_equal(whole, b->logits, sizeof whole);

    b->rows[0].id = -1 - 2; /* the id of a slot */
    b->sampled[2] = 89 * 7 % 50;
    assert_int_equal(ech_sim_run(b->sim, b->forward, &b->args, NULL), ECH_OK);
    assert_memory_equal(whole, b->logits, sizeof whole);
    b->sampled[2]++;
    assert_int_equal(ech_sim_run(b->sim, b->forward, &b->args, NULL), ECH_OK);
    assert_memory_not_equal(whole, b->logits, sizeof whole);

    b->tables[2] = 5; /* a page that isn't the sequence's */
    assert_int_equal(step(b, 89, 1, 0), ECH_OK);
    assert_memory_not_equal(whole, b->logits, sizeof whole);
    bench_close(b);
}

static void rows_out_of_range_write_nothing(void **state)
{
    bench *const b = *state;
    bench_open(b, NULL, 0);
    char *const before = malloc(b->toy.page_bytes);
    memcpy(before, b->kv, b->toy.page_bytes);
    assert_int_equal(step(b, 0, 97, 0), ECH_EINVAL); /* position 96 */
    b->tables[1] = PAGES;
    assert_int_equal(step(b, 0, 40, 0), ECH_EINVAL);
    b->tables[1] = 1;
    assert_int_equal(step(b, 0, 40, 2 * PAGES - 1), ECH_EINVAL);
    assert_int_equal(step(b, 0, 2, 0), ECH_OK);
    memcpy(b->kv, before, b->toy.page_bytes);
    b->rows[1].id = 50;
    assert_int_equal(ech_sim_run(b->sim, b->forward, &b->args, NULL), ECH_EINVAL);
    b->rows[1].id = -1 - SLOTS;
    assert_int_equal(ech_sim_run(b->sim, b->forward, &b->args, NULL), ECH_EINVAL);
    b->scalars[ECH_STEP_N_ROWS] = UINT64_MAX;
    assert_int_equal(ech_sim_run(b->sim, b->forward, &b->args, NULL), ECH_EINVAL);
    assert_memory_equal(before, b->kv, b->toy.page_bytes);
    free(before);
    bench_close(b);
}

static ech_sim_options one_rule(const ech_sim_rule rule)
{
    return (
        ech_sim_options){ .struct_size = sizeof(ech_sim_options), .n_rules = 1, .rules = { rule } };
}

static void a_rule_strikes_at_its_events(void **state)
{
    bench *const b = *state;
    const ech_sim_options o = one_rule((ech_sim_rule){ .event = ECH_SIM_RUN,
                                                       .action = ECH_SIM_FAIL,
                                                       .kind = ECH_PROGRAM_FORWARD,
                                                       .first = 2,
                                                       .every = 3,
                                                       .arg = ECH_ENUMERIC,
                                                       .max_generation = 1 });
    bench_open(b, &o, 1);
    for (uint32_t i = 0; i < 12; i++) {
        assert_int_equal(step(b, i, 1, 0), i % 3 == 2 ? ECH_ENUMERIC : ECH_OK);
    }
    bench_close(b);
    bench_open(b, &o, 2); /* another generation: nothing */
    for (uint32_t i = 0; i < 12; i++) {
        assert_int_equal(step(b, i, 1, 0), ECH_OK);
    }
    bench_close(b);
}

static void a_poisoned_id_strikes_wherever_it_is(void **state)
{
    bench *const b = *state;
    const ech_sim_options o = one_rule((ech_sim_rule){
        .event = ECH_SIM_RUN, .action = ECH_SIM_FAIL, .every = 1, .has_id = 1, .id = 21 });
    bench_open(b, &o, 0);
    assert_int_equal(step(b, 0, 3, 0), ECH_OK); /* 0 7 14 */
    assert_int_equal(step(b, 0, 4, 0), ECH_ETASK);
    assert_int_equal(step(b, 4, 1, 0), ECH_OK);
    b->rows[0].id = -1;
    b->sampled[0] = 21;
    assert_int_equal(ech_sim_run(b->sim, b->forward, &b->args, NULL), ECH_ETASK);
    bench_close(b);
}

/* Wait status of a child that makes a chip with these options and runs one step. */
static int status_of(bench *const b, const ech_sim_options *const o)
{
    const pid_t pid = fork();
    if (pid == 0) {
        bench_open(b, o, 0);
        (void)step(b, 0, 1, 0);
        _exit(99);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void deaths_are_those_that_were_asked_for(void **state)
{
    bench *const b = *state;
    const uint32_t events[] = { ECH_SIM_OPEN, ECH_SIM_LOAD, ECH_SIM_RUN };
    for (int i = 0; i < 3; i++) {
        ech_sim_options o =
            one_rule((ech_sim_rule){ .event = events[i], .action = ECH_SIM_EXIT, .arg = 7 + i });
        int status = status_of(b, &o);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 7 + i);
        o.rules[0].action = ECH_SIM_KILL;
        o.rules[0].arg = 0;
        status = status_of(b, &o);
        assert_true(WIFSIGNALED(status));
        assert_int_equal(WTERMSIG(status), SIGKILL);
    }
}

static void a_stall_neither_returns_nor_progresses(void **state)
{
    bench *const b = *state;
    const ech_sim_options o =
        one_rule((ech_sim_rule){ .event = ECH_SIM_RUN, .action = ECH_SIM_STALL });
    const pid_t pid = fork();
    if (pid == 0) {
        bench_open(b, &o, 0);
        (void)step(b, 0, 1, 0);
        _exit(99);
    }
    (void)usleep(100 * 1000);
    int status;
    assert_int_equal(waitpid(pid, &status, WNOHANG), 0);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
}

static bool count_polls(void *const ctx, const uint32_t where)
{
    (void)where;
    return ++*(int *)ctx > 20;
}

static void slowness_progresses_and_can_be_cancelled(void **state)
{
    bench *const b = *state;
    ech_sim_options o = one_rule(
        (ech_sim_rule){ .event = ECH_SIM_RUN, .action = ECH_SIM_SLOW, .every = 1, .arg = 5 });
    int polls = 0;
    b->args.poll = count_polls;
    b->args.poll_ctx = &polls;
    bench_open(b, &o, 0);
    assert_int_equal(step(b, 0, 1, 0), ECH_OK);
    assert_int_equal(polls, 6);
    bench_close(b);
    o.rules[0].arg = 1000000;
    bench_open(b, &o, 0);
    assert_int_equal(step(b, 1, 1, 0), ECH_ECANCELLED);
    assert_int_equal(polls, 21);
    bench_close(b);
    b->args.poll = NULL;
}

static void a_call_does_what_its_scalars_say(void **state)
{
    bench *const b = *state;
    bench_open(b, NULL, 0);
    const uint64_t bytes = ECH_SIM_CALL;
    ech_sim_program *call = NULL;
    assert_int_equal(ech_sim_load(b->sim, &bytes, sizeof bytes, &call, NULL), ECH_OK);
    uint64_t scalars[2] = { ECH_SIM_NOTHING, 0 };
    const ech_exec_args args = { .scalars = scalars, .n_scalars = 2 };
    assert_int_equal(ech_sim_run(b->sim, call, &args, NULL), ECH_OK);
    scalars[0] = ECH_SIM_FAIL;
    scalars[1] = (uint64_t)(int64_t)ECH_EIO;
    assert_int_equal(ech_sim_run(b->sim, call, &args, NULL), ECH_EIO);
    scalars[0] = ECH_SIM_ACTIONS;
    assert_int_equal(ech_sim_run(b->sim, call, &args, NULL), ECH_EINVAL);
    ech_sim_unload(&call);
    bench_close(b);
}

static void bad_options_and_programs_are_refused(void **state)
{
    bench *const b = *state;
    ech_sim *sim = NULL;
    ech_sim_options o = one_rule((ech_sim_rule){ .event = ECH_SIM_EVENTS });
    assert_int_equal(ech_sim_create(&sim, &o, sizeof o, 0, NULL), ECH_EINVAL);
    assert_int_equal(ech_sim_create(&sim, &o, sizeof o - 1, 0, NULL), ECH_EINVAL);
    o.n_rules = ECH_SIM_MAX_RULES + 1;
    assert_int_equal(ech_sim_create(&sim, &o, sizeof o, 0, NULL), ECH_EINVAL);
    o = one_rule((ech_sim_rule){ .event = ECH_SIM_OPEN, .action = ECH_SIM_FAIL, .arg = ECH_EIO });
    assert_int_equal(ech_sim_create(&sim, &o, sizeof o, 0, NULL), ECH_EIO);
    assert_null(sim);
    bench_open(b, NULL, 0);
    ech_sim_program *p = NULL;
    assert_int_equal(ech_sim_load(b->sim, b->toy.program, b->toy.program_len - 1, &p, NULL),
                     ECH_EFORMAT);
    assert_null(p);
    bench_close(b);
}

static void sampling_is_the_real_samplers(void **state)
{
    bench *const b = *state;
    bench_open(b, NULL, 0);
    assert_int_equal(step(b, 0, 3, 0), ECH_OK);
    void *bytes;
    size_t len;
    assert_int_equal(ech_sample_program(50, 96, 1, &bytes, &len, NULL), ECH_OK);
    ech_sim_program *sample = NULL;
    assert_int_equal(ech_sim_load(b->sim, bytes, len, &sample, NULL), ECH_OK);
    ech_sampler_row row;
    ech_sampler_row_init(&row);
    row.out_slot = 1;
    _Alignas(8) uint8_t out[ECH_SAMPLE_OUT_BYTES(0)];
    const ech_exec_tensor tensors[ECH_SAMPLE_T_COUNT] = {
        [ECH_SAMPLE_T_LOGITS] = { b->logits, 50 * sizeof *b->logits },
        [ECH_SAMPLE_T_ROWS] = { &row, sizeof row },
        [ECH_SAMPLE_T_IDS] = { b->sampled, sizeof b->sampled },
        [ECH_SAMPLE_T_OUT] = { out, sizeof out },
    };
    const uint64_t scalars[] = { 1, sizeof out };
    const ech_exec_args args = { .tensors = tensors,
                                 .n_tensors = ECH_SAMPLE_T_COUNT,
                                 .scalars = scalars,
                                 .n_scalars = ECH_SAMPLE_S_COUNT };
    b->sampled[1] = -1;
    assert_int_equal(ech_sim_run(b->sim, sample, &args, NULL), ECH_OK);
    int32_t best = 0;
    for (int32_t i = 1; i < 50; i++) {
        if (b->logits[i] > b->logits[best]) best = i;
    }
    assert_int_equal(b->sampled[1], best);
    ech_sim_unload(&sample);
    free(bytes);
    bench_close(b);
}

static void local_memory_takes_only_its_own_addresses(void **state)
{
    (void)state;
    ech_sim_memory m;
    ech_sim_memory other;
    assert_int_equal(ech_sim_memory_init(&m, 4096, NULL), ECH_OK);
    assert_int_equal(ech_sim_memory_init(&other, 4096, NULL), ECH_OK);
    uint64_t a;
    uint64_t b;
    uint64_t c;
    void *p;
    assert_int_equal(ech_sim_memory_alloc(&m, 100, &a, NULL), ECH_OK);
    assert_int_equal(ech_sim_memory_alloc(&m, 50, &b, NULL), ECH_OK);
    assert_int_equal(ech_sim_memory_alloc(&other, 50, &c, NULL), ECH_OK);
    assert_int_equal(ech_sim_memory_alloc(&m, 4096, &c, NULL), ECH_ELIMIT);
    assert_int_equal(ech_sim_memory_free(&m, a + 1, NULL), ECH_ESTALE); /* interior */
    assert_int_equal(ech_sim_memory_free(&m, c, NULL), ECH_ESTALE);     /* foreign */
    assert_int_equal(ech_sim_memory_free(&m, 0, NULL), ECH_ESTALE);
    assert_int_equal(ech_sim_memory_at(&m, a + 10, 90, &p, NULL), ECH_OK);
    assert_int_equal(ech_sim_memory_at(&m, a + 10, 91, &p, NULL), ECH_ELIMIT);
    assert_int_equal(ech_sim_memory_at(&m, a + 100, 0, &p, NULL), ECH_ESTALE);
    assert_int_equal(ech_sim_memory_at(&m, a, UINT64_MAX, &p, NULL), ECH_ELIMIT);
    assert_int_equal(ech_sim_memory_free(&m, a, NULL), ECH_OK);
    assert_int_equal(ech_sim_memory_free(&m, a, NULL), ECH_ESTALE); /* stale */
    assert_int_equal(ech_sim_memory_at(&m, a, 1, &p, NULL), ECH_ESTALE);
    assert_int_equal(ech_sim_memory_free(&m, b, NULL), ECH_OK);
    assert_int_equal(ech_sim_memory_alloc(&m, 4096, &a, NULL), ECH_OK); /* all of it is back */
    ech_sim_memory_fini(&m);
    ech_sim_memory_fini(&other);
}

static void commands_reach_local_memory(void **state)
{
    (void)state;
    ech_sim_options o = { .struct_size = sizeof o, .local_bytes = 4096 };
    ech_sim *sim = NULL;
    assert_int_equal(ech_sim_create(&sim, &o, sizeof o, 0, NULL), ECH_OK);
    struct {
        ech_sim_memory_request r;
        char text[8];
    } req = { { 0, 8 }, "abcdefg" };
    char resp[64];
    size_t len;
    assert_int_equal(
        ech_sim_control(sim, ECH_SIM_ALLOC, &req, sizeof req.r, resp, sizeof resp, &len, NULL),
        ECH_OK);
    memcpy(&req.r.address, resp, sizeof req.r.address);
    assert_int_equal(
        ech_sim_control(sim, ECH_SIM_COPY_IN, &req, sizeof req, resp, sizeof resp, &len, NULL),
        ECH_OK);
    assert_int_equal(
        ech_sim_control(sim, ECH_SIM_COPY_OUT, &req, sizeof req.r, resp, sizeof resp, &len, NULL),
        ECH_OK);
    assert_int_equal(len, 8);
    assert_string_equal(resp, "abcdefg");
    assert_int_equal(
        ech_sim_control(sim, ECH_SIM_COPY_IN, &req, sizeof req.r, resp, sizeof resp, &len, NULL),
        ECH_EINVAL); /* without its bytes */
    assert_int_equal(
        ech_sim_control(sim, ECH_SIM_COPY_OUT, &req, sizeof req.r, resp, 7, &len, NULL),
        ECH_ELIMIT);
    assert_int_equal(
        ech_sim_control(sim, ECH_SIM_FREE, &req, sizeof req.r - 1, resp, sizeof resp, &len, NULL),
        ECH_EINVAL);
    assert_int_equal(
        ech_sim_control(sim, ECH_SIM_FREE, &req, sizeof req.r, resp, sizeof resp, &len, NULL),
        ECH_OK);
    assert_int_equal(ech_sim_control(sim, 99, &req, sizeof req, resp, sizeof resp, &len, NULL),
                     ECH_EUNSUPPORTED);
    ech_sim_destroy(&sim);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(logits_depend_on_ids_and_pages_alone),
        T(rows_out_of_range_write_nothing),
        T(a_rule_strikes_at_its_events),
        T(a_poisoned_id_strikes_wherever_it_is),
        T(deaths_are_those_that_were_asked_for),
        T(a_stall_neither_returns_nor_progresses),
        T(slowness_progresses_and_can_be_cancelled),
        T(a_call_does_what_its_scalars_say),
        T(bad_options_and_programs_are_refused),
        T(sampling_is_the_real_samplers),
        cmocka_unit_test(local_memory_takes_only_its_own_addresses),
        cmocka_unit_test(commands_reach_local_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
