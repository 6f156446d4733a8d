/* SPDX-License-Identifier: Apache-2.0 */
/* Sampling options. See sampling.h; pure, any thread. */
#include "src/engine/sampling.h"

#include <math.h>

#include "src/base/error.h"

void ech_sampling_default(ech_sampling *s)
{
    *s = (ech_sampling){
        .struct_size = sizeof *s,
        .temperature = 1,
        .top_p = 1,
        .typical_p = 1,
        .repetition_penalty = 1,
        .dry_base = 1.75f,
        .dry_allowed_length = 2,
        .dry_range = -1,
        .xtc_threshold = 0.1f,
        .mirostat_tau = 5,
        .mirostat_eta = 0.1f,
    };
}

/* ---- checking ---- */

typedef struct range {
    const char *name;
    double value, min, max;
    bool above_min; /* the minimum itself isn't allowed */
} range;

static ech_status check_ranges(const range *r, size_t n, ech_error *err)
{
    for (size_t i = 0; i < n; i++) {
        const bool is_in = r[i].value >= r[i].min && r[i].value <= r[i].max &&
                           !(r[i].above_min && r[i].value == r[i].min);
        if (!is_in) /* NaN too */
            return ech_fail_argument(
                err, ECH_EINVAL, r[i].name, "%s is %g, must be %s %g and at most %g", r[i].name,
                r[i].value, r[i].above_min ? "above" : "at least", r[i].min, r[i].max);
    }
    return ECH_OK;
}

static ech_status check_ids(const char *name, const int32_t *ids, size_t n, uint32_t vocab,
                            ech_error *err)
{
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || (uint32_t)ids[i] >= vocab)
            return ech_fail_argument(err, ECH_EINVAL, name, "%s has the id %d, ids are 0 to %u",
                                     name, ids[i], vocab - 1);
    return ECH_OK;
}

static ech_status check_bias(const ech_sampling *s, uint32_t vocab, ech_error *err)
{
    for (size_t i = 0; i < s->n_logit_bias; i++) {
        const ech_logit_bias *const b = &s->logit_bias[i];
        ECH_TRY(check_ids("logit_bias", &b->id, 1, vocab, err));
        if (!isfinite(b->bias) && b->bias != -INFINITY)
            return ech_fail_argument(err, ECH_EINVAL, "logit_bias",
                                     "logit_bias of the id %d is not a number", b->id);
    }
    return ECH_OK;
}

static ech_status check_bad_words(const ech_sampling *s, uint32_t vocab, ech_error *err)
{
    for (size_t i = 0; i < s->n_bad_words; i++) {
        if (s->bad_words[i].n == 0)
            return ech_fail_argument(err, ECH_EINVAL, "bad_words", "bad_words has an empty word");
        ECH_TRY(check_ids("bad_words", s->bad_words[i].ids, s->bad_words[i].n, vocab, err));
    }
    return ECH_OK;
}

ech_status ech_sampling_check(const ech_sampling *s, uint32_t vocab, ech_error *err)
{
    const range ranges[] = {
        { "temperature", s->temperature, 0, 100, false },
        { "top_k", s->top_k, 0, INT32_MAX, false },
        { "top_p", s->top_p, 0, 1, true },
        { "min_p", s->min_p, 0, 1, false },
        { "typical_p", s->typical_p, 0, 1, true },
        { "repetition_penalty", s->repetition_penalty, 0.001, 1000, false },
        { "frequency_penalty", s->frequency_penalty, -2, 2, false },
        { "presence_penalty", s->presence_penalty, -2, 2, false },
        { "dry_multiplier", s->dry_multiplier, 0, 1e6, false },
        { "dry_base", s->dry_base, 1, 1e6, false },
        { "dry_allowed_length", s->dry_allowed_length, 0, 1 << 20, false },
        { "dry_range", s->dry_range, -1, INT32_MAX, false },
        { "xtc_probability", s->xtc_probability, 0, 1, false },
        { "xtc_threshold", s->xtc_threshold, 0, 1, false },
        { "mirostat", s->mirostat, 0, 2, false },
        { "mirostat_tau", s->mirostat_tau, 0, 1000, false },
        { "mirostat_eta", s->mirostat_eta, 0, 1000, false },
    };
    ECH_TRY(check_ranges(ranges, sizeof ranges / sizeof ranges[0], err));
    ECH_TRY(check_bias(s, vocab, err));
    ECH_TRY(check_ids("allowed_ids", s->allowed_ids, s->n_allowed_ids, vocab, err));
    ECH_TRY(check_ids("banned_ids", s->banned_ids, s->n_banned_ids, vocab, err));
    return check_bad_words(s, vocab, err);
}

/* ---- copying ---- */

static ech_status copy_array(void *ret_ptr, const void *from, size_t n, size_t size,
                             ech_arena *arena)
{
    void *const copy = n > 0 ? ech_arena_array(arena, n, size) : NULL;
    if (n > 0 && copy == NULL) return ECH_ENOMEM;
    if (n > 0) memcpy(copy, from, n * size);
    memcpy(ret_ptr, &copy, sizeof copy);
    return ECH_OK;
}

ech_status ech_sampling_copy(ech_sampling *ret, const ech_sampling *s, ech_arena *arena)
{
    *ret = *s;
    ECH_TRY(
        copy_array(&ret->logit_bias, s->logit_bias, s->n_logit_bias, sizeof *s->logit_bias, arena));
    ECH_TRY(
        copy_array(&ret->allowed_ids, s->allowed_ids, s->n_allowed_ids, sizeof(int32_t), arena));
    ECH_TRY(copy_array(&ret->banned_ids, s->banned_ids, s->n_banned_ids, sizeof(int32_t), arena));
    if (s->n_bad_words == 0) return ECH_OK;
    ech_id_list *const words = ech_arena_array(arena, s->n_bad_words, sizeof *words);
    if (words == NULL) return ECH_ENOMEM;
    for (size_t i = 0; i < s->n_bad_words; i++) {
        words[i].n = s->bad_words[i].n;
        ECH_TRY(copy_array(&words[i].ids, s->bad_words[i].ids, words[i].n, sizeof(int32_t), arena));
    }
    ret->bad_words = words;
    return ECH_OK;
}

/* ---- rows and lists ---- */

/* An id and its bias. A bias of -inf becomes a banned id, which takes less. */
enum { BIAS_INTS = 2 };

static size_t bad_words_ints(const ech_sampling *s)
{
    size_t n = 0;
    for (size_t i = 0; i < s->n_bad_words; i++)
        n += 1 + s->bad_words[i].n;
    return n;
}

uint64_t ech_sampling_list_ints(const ech_sampling *s, size_t n_stop_ids)
{
    return BIAS_INTS * (uint64_t)s->n_logit_bias + s->n_allowed_ids + s->n_banned_ids + n_stop_ids +
           bad_words_ints(s);
}

const char *ech_sampling_longest_list(const ech_sampling *s, size_t n_stop_ids)
{
    const struct {
        const char *name;
        size_t n_ints;
    } lists[] = {
        { "logit_bias", BIAS_INTS * s->n_logit_bias },
        { "allowed_ids", s->n_allowed_ids },
        { "banned_ids", s->n_banned_ids },
        { "bad_words", bad_words_ints(s) },
        { "stop_ids", n_stop_ids },
    };
    size_t longest = 0;
    for (size_t i = 1; i < sizeof lists / sizeof lists[0]; i++)
        if (lists[i].n_ints > lists[longest].n_ints) longest = i;
    return lists[longest].name;
}

typedef struct list_writer {
    int32_t *ints;
    uint32_t n;
    uint32_t offset;
} list_writer;

static void put_ids(list_writer *w, const int32_t *ids, size_t n)
{
    if (n > 0) memcpy(w->ints + w->n, ids, n * sizeof *ids);
    w->n += (uint32_t)n;
}

static ech_sampler_list end_list(const list_writer *w, uint32_t start)
{
    return (ech_sampler_list){ .offset = w->offset + start, .n = w->n - start };
}

static ech_sampler_list write_bias(list_writer *w, const ech_sampling *s)
{
    const uint32_t start = w->n;
    for (size_t i = 0; i < s->n_logit_bias; i++) {
        if (!isfinite(s->logit_bias[i].bias)) continue;
        int32_t pair[2] = { s->logit_bias[i].id };
        memcpy(&pair[1], &s->logit_bias[i].bias, sizeof pair[1]);
        put_ids(w, pair, 2);
    }
    return end_list(w, start);
}

static ech_sampler_list write_banned(list_writer *w, const ech_sampling *s)
{
    const uint32_t start = w->n;
    put_ids(w, s->banned_ids, s->n_banned_ids);
    for (size_t i = 0; i < s->n_logit_bias; i++)
        if (!isfinite(s->logit_bias[i].bias)) put_ids(w, &s->logit_bias[i].id, 1);
    return end_list(w, start);
}

static ech_sampler_list write_bad_words(list_writer *w, const ech_sampling *s)
{
    const uint32_t start = w->n;
    for (size_t i = 0; i < s->n_bad_words; i++) {
        const int32_t n = (int32_t)s->bad_words[i].n;
        put_ids(w, &n, 1);
        put_ids(w, s->bad_words[i].ids, s->bad_words[i].n);
    }
    return end_list(w, start);
}

static ech_sampler_list write_list(list_writer *w, const int32_t *ids, size_t n)
{
    const uint32_t start = w->n;
    put_ids(w, ids, n);
    return end_list(w, start);
}

void ech_sampling_fill(ech_sampler_row *row, const ech_sampling *s, const ech_breakers *breakers,
                       const int32_t *stop_ids, size_t n_stop_ids, int32_t *ints, uint32_t offset)
{
    row->temperature = s->temperature;
    row->top_k = (uint32_t)s->top_k;
    row->top_p = s->top_p;
    row->min_p = s->min_p;
    row->typical_p = s->typical_p;
    row->repetition = s->repetition_penalty;
    row->frequency = s->frequency_penalty;
    row->presence = s->presence_penalty;
    row->dry_multiplier = s->dry_multiplier;
    row->dry_base = s->dry_base;
    row->dry_allowed_length = (uint32_t)s->dry_allowed_length;
    row->dry_window = s->dry_range > 0 ? (uint32_t)s->dry_range : 0;
    if (s->dry_range == 0) row->dry_multiplier = 0; /* looks back at nothing */
    row->xtc_probability = s->xtc_probability;
    row->xtc_threshold = s->xtc_threshold;
    row->mirostat = (uint32_t)s->mirostat;
    row->mirostat_tau = s->mirostat_tau;
    row->mirostat_eta = s->mirostat_eta;
    list_writer w = { .ints = ints, .offset = offset };
    row->bias = write_bias(&w, s);
    row->allowed = write_list(&w, s->allowed_ids, s->n_allowed_ids);
    row->banned = write_banned(&w, s);
    row->stop = write_list(&w, stop_ids, n_stop_ids);
    row->bad_words = write_bad_words(&w, s);
    row->dry_breakers = write_list(&w, breakers->ids, breakers->n_ids);
    row->dry_sequences = write_list(&w, breakers->sequences, breakers->n_sequences);
}

bool ech_sampling_bends_masks(const ech_sampling *s)
{
    for (size_t i = 0; i < s->n_logit_bias; i++)
        if (!isfinite(s->logit_bias[i].bias)) return true;
    return s->n_allowed_ids > 0 || s->n_banned_ids > 0 || s->n_bad_words > 0 || s->mirostat != 0;
}

bool ech_sampling_needs_history(const ech_sampling *s)
{
    return s->repetition_penalty != 1 || s->frequency_penalty != 0 || s->presence_penalty != 0 ||
           s->dry_multiplier != 0 || s->n_bad_words > 0;
}
