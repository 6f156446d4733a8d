/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Golden outputs of models (tests/golden/parser): whole, a byte at a time, cut at every place and
 * at random, markers as text and as tokens, always the same events. `--all`: cut at every two
 * places as well (outputs of more than LONG bytes: ten second places each), and 1,000
 * random ways. A number is the seed of the random cuts.
 */
#include "tests/unit/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/text/parser_harness.h"

static uint64_t rng = 1;
static bool all;

enum { LONG = 150 };

static uint32_t next(void)
{
    rng = rng * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(rng >> 33);
}

static void show(const char *const what, const ech_buf *const b)
{
    printf("%s ", what);
    for (size_t i = 0; i < b->len; i++) {
        const char c = b->data[i];
        if (c == 1) {
            printf(" | ");
        } else if (c == 2) {
            printf(" ~ ");
        } else if (c == '\n') {
            printf("\\n");
        } else {
            putchar(c);
        }
    }
    printf("\n");
}

static size_t n_failed;

static void expect(const golden *const g, const bool *const cuts, const bool ids,
                   ech_buf *const got)
{
    harness_parse(&g->options, g->in, g->len, cuts, ids, got);
    if (got->len == g->want.len &&
        (got->len == 0 || memcmp(got->data, g->want.data, got->len) == 0))
        return;
    printf("%s (%s, cut before", g->name, ids ? "ids" : "text");
    for (size_t i = 0; cuts != NULL && i < g->len; i++) {
        if (cuts[i]) printf(" %zu", i);
    }
    printf(")\n");
    show("  want", &g->want);
    show("  got ", got);
    n_failed++;
}

static void cut_everywhere(const golden *const g, const bool ids, bool *const cuts,
                           ech_buf *const got)
{
    for (size_t i = 1; i < g->len && n_failed < 20; i++) {
        cuts[i] = true;
        expect(g, cuts, ids, got);
        for (size_t k = i + 1; all && k < g->len && n_failed < 20; k++) {
            const size_t second = g->len <= LONG ? k : i + 1 + next() % (g->len - i - 1);
            if (g->len > LONG && k - i > 10) break;
            cuts[second] = true;
            expect(g, cuts, ids, got);
            cuts[second] = false;
        }
        cuts[i] = false;
    }
}

static void cut_at_random(const golden *const g, const bool ids, bool *const cuts,
                          ech_buf *const got)
{
    for (int n = 0; n < (all ? 1000 : 20) && n_failed < 20; n++) {
        const uint32_t density = 2 + next() % 12;
        for (size_t i = 0; i < g->len; i++) {
            cuts[i] = next() % density == 0;
        }
        expect(g, cuts, ids, got);
    }
    memset(cuts, 0, g->len);
}

static void check(const golden *const g)
{
    bool *const cuts = calloc(g->len + 1, sizeof *cuts);
    ech_buf got = { 0 };
    for (int ids = 0; ids < 2; ids++) {
        if (!(ids ? g->ids_mode : g->text_mode)) continue;
        const size_t before = n_failed;
        expect(g, NULL, ids, &got);
        memset(cuts, 1, g->len);
        expect(g, cuts, ids, &got);
        memset(cuts, 0, g->len);
        if (n_failed != before) continue; /* once is enough */
        cut_everywhere(g, ids, cuts, &got);
        cut_at_random(g, ids, cuts, &got);
    }
    ech_buf_fini(&got);
    free(cuts);
}

static void events_do_not_depend_on_the_cuts(void **state)
{
    (void)state;
    ech_buf file = { 0 };
    harness_file("golden/parser/outputs.jsonl", &file);
    size_t n = 0;
    for (const char *at = file.data; at < file.data + file.len;) {
        const char *const end = strchr(at, '\n');
        golden g;
        golden_read(&g, at, (size_t)(end - at));
        check(&g);
        golden_release(&g);
        at = end + 1;
        n++;
    }
    printf("%zu goldens\n", n);
    assert_true(n >= 200);
    assert_int_equal(n_failed, 0);
    ech_buf_fini(&file);
}

int main(const int argc, char **const argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--all") == 0) {
            all = true;
        } else {
            rng = strtoull(argv[i], NULL, 0);
        }
    }
    printf("seed=%llu\n", (unsigned long long)rng);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_do_not_depend_on_the_cuts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
