/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Faults that users of other servers reported about model files. Argument: the case.
 *
 * TR3  a Hugging Face folder of safetensors should run as it is
 * TR4  a stale index names shards that don't exist
 * TR5  tie_word_embeddings and the tensors disagree
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/model/weights.h"
#include "tests/unit/model/fixture.h"
#include "tests/unit/model/runner.h"

#define TIED   GOLDEN "/qwen3/gqa-tied-bf16"
#define UNTIED GOLDEN "/qwen3/mha-f16"

static fixture dir;

/* Logits of three ids; the caller frees. */
static float *run(const char *const path, uint32_t *const ret_vocab)
{
    static const int32_t IDS[] = { 558, 630, 399 };
    const runner_options o = { .n_threads = 1, .max_rows = 3, .max_positions = 3, .n_seqs = 1 };
    runner r;
    assert_int_equal(runner_open(&r, path, &o), ECH_OK);
    float *const logits = calloc((size_t)3 * r.info.vocab, sizeof *logits);
    lane l = { .ids = IDS, .n = 3, .chunk = 3, .logits = logits };
    runner_run(&r, &l, 1);
    *ret_vocab = r.info.vocab;
    runner_close(&r);
    return logits;
}

static void same_logits(const char *const a, const char *const b)
{
    uint32_t vocab = 0;
    uint32_t vocab_b = 0;
    float *const x = run(a, &vocab);
    float *const y = run(b, &vocab_b);
    assert_int_equal(vocab, vocab_b);
    assert_memory_equal(x, y, (size_t)3 * vocab * sizeof *x);
    free(x);
    free(y);
}

static void expect_error(const ech_status code, const char *const text)
{
    ech_model *m = NULL;
    ech_error err = { 0 };
    assert_int_equal(ech_model_open(&m, dir.folder, &err), code);
    if (strstr(err.text, text) == NULL) fail_msg("\"%s\" instead of \"%s\"", err.text, text);
}

static void expect_warning(const char *const text)
{
    ech_model *m = NULL;
    ech_error err;
    assert_int_equal(ech_model_open(&m, dir.folder, &err), ECH_OK);
    assert_non_null(ech_model_warning_at(m, 0));
    if (strstr(ech_model_warning_at(m, 0), text) == NULL)
        fail_msg("%s", ech_model_warning_at(m, 0));
    assert_null(ech_model_warning_at(m, 1));
    ech_model_close(&m);
}

/* Every kind of folder: one file, sharded, f32, f16, bf16, older and newer config. */
static void tr3(void **state)
{
    (void)state;
    const char *const folders[] = {
        GOLDEN "/qwen3/gqa-tied-bf16",    GOLDEN "/qwen3/untied-f32",    GOLDEN "/qwen3/mha-f16",
        GOLDEN "/qwen3/mqa-sharded-bf16", GOLDEN "/qwen3/yarn-bf16",     GOLDEN "/llama/tied-f32",
        GOLDEN "/llama/llama3-rope-bf16", ECH_SOURCE_DIR "/models/tale",
    };
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        uint32_t vocab = 0;
        float *const logits = run(folders[i], &vocab);
        for (size_t k = 0; k < (size_t)3 * vocab; k++) {
            assert_true(logits[k] > -1e6f && logits[k] < 1e6f);
        }
        free(logits);
    }
}

static void tr4(void **state)
{
    (void)state;
    fixture_copy(&dir, GOLDEN "/qwen3/mqa-sharded-bf16");
    assert_int_equal(unlink(fixture_path(&dir, "model-00003-of-00009.safetensors")), 0);
    assert_int_equal(unlink(fixture_path(&dir, "model-00007-of-00009.safetensors")), 0);
    expect_error(ECH_ENOTFOUND, "2 of its 9 shards don't exist: model-00003-of-00009.safetensors, "
                                "model-00007-of-00009.safetensors; "
                                "the folder holds: ");

    /* Saved again as one file, the old index left behind: the file is what counts. */
    fixture_close(&dir);
    fixture_open(&dir);
    fixture_copy(&dir, TIED);
    fixture_puts(&dir, "model.safetensors.index.json",
                 "{\"weight_map\":{\"model.norm.weight\":\"model-00001-of-00002.safetensors\"}}");
    expect_warning("model.safetensors.index.json is not used");
    same_logits(TIED, dir.folder);
}

static void tr5(void **state)
{
    (void)state;
    /* Tied by the config and no head: as it should be. Now the config says untied. */
    fixture_copy(&dir, TIED);
    fixture_replace(&dir, "config.json", "\"tie_word_embeddings\": true",
                    "\"tie_word_embeddings\": false");
    expect_warning("tie_word_embeddings is false");
    same_logits(TIED, dir.folder);
    fixture_close(&dir);

    /* A head in the files, and a config that says tied. */
    fixture_open(&dir);
    fixture_copy(&dir, UNTIED);
    fixture_replace(&dir, "config.json", "\"tie_word_embeddings\": false",
                    "\"tie_word_embeddings\": true");
    expect_warning("tie_word_embeddings is true");
    same_logits(UNTIED, dir.folder);

    /* Nothing said is nothing to warn of. */
    fixture_replace(&dir, "config.json", "\"tie_word_embeddings\": true,", "");
    ech_model *m = NULL;
    ech_error err;
    assert_int_equal(ech_model_open(&m, dir.folder, &err), ECH_OK);
    assert_null(ech_model_warning_at(m, 0));
    ech_model_close(&m);
}

int main(const int argc, char **const argv)
{
    static const struct {
        const char *name;
        CMUnitTestFunction test;
    } CASES[] = { { "TR3", tr3 }, { "TR4", tr4 }, { "TR5", tr5 } };
    for (size_t i = 0; argc == 2 && i < sizeof CASES / sizeof CASES[0]; i++) {
        if (strcmp(argv[1], CASES[i].name) != 0) continue;
        const struct CMUnitTest tests[] = { { .name = CASES[i].name, .test_func = CASES[i].test } };
        fixture_open(&dir);
        const int failed = cmocka_run_group_tests(tests, NULL, NULL);
        fixture_close(&dir);
        return failed;
    }
    (void)fprintf(stderr, "usage: %s TR3|TR4|TR5\n", argv[0]);
    return 2;
}
