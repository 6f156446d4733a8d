/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/engine/kv.h"

#define T ECH_KV_TOKENS

/* ---- small cases ---- */

static void fill(int32_t *ids, size_t n, int32_t first)
{
    for (size_t i = 0; i < n; i++)
        ids[i] = first + (int32_t)i;
}

static void a_page_is_free_used_or_cached(void **state)
{
    (void)state;
    ech_kv kv;
    int32_t ids[T];
    fill(ids, T, 0);
    assert_int_equal(ech_kv_init(&kv, 2, 1, NULL), ECH_OK);
    uint32_t a, b, c;
    assert_true(ech_kv_acquire(&kv, &a));
    assert_true(ech_kv_acquire(&kv, &b));
    assert_false(ech_kv_acquire(&kv, &c));
    assert_int_equal(ech_kv_insert(&kv, 0, ECH_KV_NONE, ids, T, a), a);
    ech_kv_unref(&kv, a);
    assert_int_equal(kv.n_cached, 1);
    assert_true(ech_kv_acquire(&kv, &c)); /* evicts a */
    assert_int_equal(c, a);
    assert_int_equal(kv.n_evictions, 1);
    ech_kv_unref(&kv, b);
    ech_kv_unref(&kv, c);
    assert_int_equal(kv.n_free, 2);
    assert_true(ech_kv_is_sound(&kv));
    ech_kv_fini(&kv);
}

static void a_hit_may_end_inside_a_page(void **state)
{
    (void)state;
    ech_kv kv;
    int32_t ids[2 * T];
    fill(ids, 2 * T, 100);
    assert_int_equal(ech_kv_init(&kv, 4, 1, NULL), ECH_OK);
    uint32_t a, b, pages[4];
    ech_kv_hit hit;
    assert_true(ech_kv_acquire(&kv, &a));
    assert_true(ech_kv_acquire(&kv, &b));
    assert_int_equal(ech_kv_insert(&kv, 0, ECH_KV_NONE, ids, T, a), a);
    assert_int_equal(ech_kv_insert(&kv, 0, a, ids + T, 5, b), b);
    ech_kv_find(&kv, 0, ids, 2 * T, pages, &hit);
    assert_int_equal(hit.n_full, 1);
    assert_int_equal(hit.partial_page, b);
    assert_int_equal(hit.partial_ids, 5);
    assert_int_equal(ech_kv_insert(&kv, 0, a, ids + T, 9, b), b); /* grows in place */
    ids[T + 7] = -1;
    ech_kv_find(&kv, 0, ids, 2 * T, pages, &hit);
    assert_int_equal(hit.partial_ids, 7);
    ech_kv_find(&kv, 0, ids, T - 1, pages, &hit); /* a full page serves a shorter prompt too */
    assert_int_equal(hit.n_full, 0);
    assert_int_equal(hit.partial_page, a);
    assert_int_equal(hit.partial_ids, T - 1);
    ech_kv_fini(&kv);
}

static void salts_are_apart_and_end(void **state)
{
    (void)state;
    ech_kv kv;
    int32_t ids[T];
    fill(ids, T, 0);
    assert_int_equal(ech_kv_init(&kv, 2, 1, NULL), ECH_OK);
    uint32_t x, y, page, pages[1];
    ech_kv_hit hit;
    assert_int_equal(ech_kv_salt_acquire(&kv, ECH_STR_LIT("x"), &x), ECH_OK);
    assert_int_equal(ech_kv_salt_acquire(&kv, ECH_STR_LIT("y"), &y), ECH_OK);
    assert_true(x != y && x != 0 && y != 0);
    assert_true(ech_kv_acquire(&kv, &page));
    ech_kv_insert(&kv, x, ECH_KV_NONE, ids, T, page);
    ech_kv_find(&kv, y, ids, T, pages, &hit);
    assert_int_equal(hit.n_full, 0);
    assert_int_equal(hit.partial_page, ECH_KV_NONE);
    ech_kv_find(&kv, x, ids, T, pages, &hit);
    assert_int_equal(hit.n_full, 1);
    ech_kv_salt_release(&kv, x); /* the node still uses it */
    ech_kv_salt_release(&kv, y);
    uint32_t found;
    assert_true(ech_kv_salt_find(&kv, ECH_STR_LIT("x"), &found));
    assert_false(ech_kv_salt_find(&kv, ECH_STR_LIT("y"), &found));
    ech_kv_unref(&kv, page);
    uint32_t p2, p3;
    assert_true(ech_kv_acquire(&kv, &p2) && ech_kv_acquire(&kv, &p3)); /* evicts it */
    assert_false(ech_kv_salt_find(&kv, ECH_STR_LIT("x"), &found));
    ech_kv_fini(&kv);
}

static void tails_go_first_then_the_least_recently_used(void **state)
{
    (void)state;
    ech_kv kv;
    int32_t ids[2][3 * T];
    uint32_t page[2][3];
    assert_int_equal(ech_kv_init(&kv, 6, 1, NULL), ECH_OK);
    for (int s = 0; s < 2; s++) {
        fill(ids[s], 3 * T, 1000 * s);
        for (int i = 0; i < 3; i++) {
            assert_true(ech_kv_acquire(&kv, &page[s][i]));
            ech_kv_insert(&kv, 0, i > 0 ? page[s][i - 1] : ECH_KV_NONE, ids[s] + i * T, T,
                          page[s][i]);
        }
    }
    for (int s = 1; s >= 0; s--) /* 1 first, so that 0 is the later used */
        for (int i = 0; i < 3; i++) {
            for (int k = 0; k < 50; k++) /* beyond what the weight of depth can outdo */
                ech_kv_touch(&kv, page[s][i]);
            ech_kv_unref(&kv, page[s][i]);
        }
    uint32_t got;
    const uint32_t expected[6] = { page[1][2], page[1][1], page[1][0],
                                   page[0][2], page[0][1], page[0][0] };
    for (int i = 0; i < 6; i++) {
        assert_true(ech_kv_acquire(&kv, &got));
        assert_int_equal(got, expected[i]);
    }
    ech_kv_fini(&kv);
}

static void a_page_computed_twice_is_held_once(void **state)
{
    (void)state;
    ech_kv kv;
    int32_t ids[T];
    fill(ids, T, 0);
    assert_int_equal(ech_kv_init(&kv, 3, 1, NULL), ECH_OK);
    uint32_t a, b;
    assert_true(ech_kv_acquire(&kv, &a));
    assert_true(ech_kv_acquire(&kv, &b));
    assert_int_equal(ech_kv_insert(&kv, 0, ECH_KV_NONE, ids, 10, a), a);
    assert_int_equal(ech_kv_insert(&kv, 0, ECH_KV_NONE, ids, 10, b), ECH_KV_NONE);
    assert_int_equal(ech_kv_insert(&kv, 0, ECH_KV_NONE, ids, T, b), b);
    assert_int_equal(ech_kv_insert(&kv, 0, ECH_KV_NONE, ids, T, a), b); /* a is no node now */
    uint32_t n;
    (void)ech_kv_node_ids(&kv, a, &n);
    assert_int_equal(n, 0);
    assert_true(ech_kv_is_sound(&kv));
    ech_kv_fini(&kv);
}

/* ---- random sequences against a model ---- */

enum { N_PAGES = 24, N_SEQS = 6, MAX_IDS = 5 * T, N_OPS = 4000 };

typedef struct model_seq {
    bool is_live;
    uint32_t salt;
    int32_t ids[MAX_IDS];
    uint32_t n_ids, n_done; /* of the ids, whose content is written */
    uint32_t pages[MAX_IDS / T];
    uint32_t n_pages;
} model_seq;

/* What a position's keys and values are a function of: all ids up to it, and the salt here, so that
 * a page of a foreign salt is seen. */
static uint64_t content[N_PAGES][T];
static model_seq seqs[N_SEQS];
static uint64_t rng;

static uint32_t draw(uint32_t n)
{
    rng = rng * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (uint32_t)((rng >> 33) % n);
}

static uint64_t content_of(const model_seq *s, uint32_t pos)
{
    uint64_t h = s->salt + 1;
    for (uint32_t i = 0; i <= pos; i++)
        h = (h ^ (uint32_t)s->ids[i]) * UINT64_C(1099511628211) + 7;
    return h;
}

static void check_content(const model_seq *s)
{
    for (uint32_t i = 0; i < s->n_done; i++)
        assert_int_equal(content[s->pages[i / T]][i % T], content_of(s, i));
}

static void end_seq(ech_kv *kv, model_seq *s)
{
    const uint32_t tail = s->n_done % T, last = s->n_done / T;
    if (tail > 0 && last < s->n_pages && draw(2))
        ech_kv_insert(kv, s->salt, last > 0 ? s->pages[last - 1] : ECH_KV_NONE, s->ids + last * T,
                      tail, s->pages[last]);
    for (uint32_t i = 0; i < s->n_pages; i++)
        ech_kv_unref(kv, s->pages[i]);
    s->is_live = false;
}

/* The longest prefix that any node holds, by looking at all of them. */
static uint32_t longest_by_walk(const ech_kv *kv, const model_seq *s)
{
    uint32_t best = 0;
    for (uint32_t page = 0; page < kv->n_pages; page++) {
        uint32_t n;
        (void)ech_kv_node_ids(kv, page, &n);
        for (uint32_t depth = 0; n > 0 && depth * T < s->n_ids; depth++)
            for (uint32_t i = 0; i < n && depth * T + i < s->n_ids; i++) {
                if (content[page][i] != content_of(s, depth * T + i)) break;
                if (depth * T + i + 1 > best) best = depth * T + i + 1;
            }
    }
    return best;
}

static void start_seq(ech_kv *kv, model_seq *s)
{
    *s = (model_seq){ .is_live = true, .salt = draw(4) == 0, .n_ids = 1 + draw(MAX_IDS) };
    for (uint32_t i = 0; i < s->n_ids; i++)
        s->ids[i] = draw(40) == 0; /* mostly zeros: long common prefixes */
    ech_kv_hit hit;
    ech_kv_find(kv, s->salt, s->ids, s->n_ids, s->pages, &hit);
    assert_int_equal(hit.n_full * T + hit.partial_ids, longest_by_walk(kv, s));
    for (uint32_t i = 0; i < hit.n_full; i++) {
        ech_kv_ref(kv, s->pages[i]);
        ech_kv_touch(kv, s->pages[i]);
    }
    s->n_pages = hit.n_full;
    s->n_done = hit.n_full * T;
    uint32_t page;
    if (hit.partial_ids > 0) {
        ech_kv_ref(kv, hit.partial_page); /* kept while it is copied */
        if (ech_kv_acquire(kv, &page)) {
            memcpy(content[page], content[hit.partial_page], sizeof content[page]);
            s->pages[s->n_pages++] = page;
            s->n_done += hit.partial_ids;
        }
        ech_kv_unref(kv, hit.partial_page);
    }
    check_content(s);
}

static void compute_some(ech_kv *kv, model_seq *s)
{
    for (uint32_t k = 1 + draw(T); k > 0 && s->n_done < s->n_ids; k--) {
        const uint32_t at = s->n_done / T;
        if (at == s->n_pages) {
            if (!ech_kv_acquire(kv, &s->pages[at])) return end_seq(kv, s);
            s->n_pages++;
        }
        content[s->pages[at]][s->n_done % T] = content_of(s, s->n_done);
        s->n_done++;
        const uint32_t n = s->n_done % T == 0 ? T : s->n_done % T;
        if (n < T && draw(8)) continue;
        const uint32_t node = ech_kv_insert(kv, s->salt, at > 0 ? s->pages[at - 1] : ECH_KV_NONE,
                                            s->ids + at * T, n, s->pages[at]);
        if (node != ECH_KV_NONE && node != s->pages[at]) {
            ech_kv_ref(kv, node);
            ech_kv_unref(kv, s->pages[at]);
            s->pages[at] = node;
        }
    }
    check_content(s);
}

static void random_use_agrees_with_a_model(void **state)
{
    (void)state;
    const char *const given = getenv("ECH_SEED");
    rng = given != NULL ? strtoull(given, NULL, 0) : 20260930;
    print_message("seed=%llu\n", (unsigned long long)rng);
    ech_kv kv;
    uint32_t salt;
    assert_int_equal(ech_kv_init(&kv, N_PAGES, rng, NULL), ECH_OK);
    assert_int_equal(ech_kv_salt_acquire(&kv, ECH_STR_LIT("other"), &salt), ECH_OK);
    assert_int_equal(salt, 1);
    memset(seqs, 0, sizeof seqs);
    for (int op = 0; op < N_OPS; op++) {
        model_seq *const s = &seqs[draw(N_SEQS)];
        if (!s->is_live)
            start_seq(&kv, s);
        else if (s->n_done == s->n_ids || draw(20) == 0)
            end_seq(&kv, s);
        else
            compute_some(&kv, s);
        assert_true(ech_kv_is_sound(&kv));
    }
    for (int i = 0; i < N_SEQS; i++)
        if (seqs[i].is_live) end_seq(&kv, &seqs[i]);
    assert_int_equal(kv.n_free + kv.n_cached, N_PAGES);
    assert_true(kv.n_evictions > 50);
    ech_kv_fini(&kv);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_page_is_free_used_or_cached),
        cmocka_unit_test(a_hit_may_end_inside_a_page),
        cmocka_unit_test(salts_are_apart_and_end),
        cmocka_unit_test(tails_go_first_then_the_least_recently_used),
        cmocka_unit_test(a_page_computed_twice_is_held_once),
        cmocka_unit_test(random_use_agrees_with_a_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
