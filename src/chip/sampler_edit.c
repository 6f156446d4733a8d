/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Masks, lists, penalties and DRY over one row of logits, all in f32. Everything that depends on
 * the sequence is derived from its ids at each step, so that nothing has to be kept, rolled back or
 * sent again when a chip dies. Linear in vocabulary plus history: DRY's longest repeats come from
 * one Z-array, not from comparing every pair of positions.
 *
 * Offsets and lengths were checked by sampler.c; ids are checked here, as they are met.
 */
#include "src/chip/sampler_edit.h"

#include <math.h>
#include <string.h>

#include "src/chip/sampler_math.h"

/* In a count: the id occurs in the prompt or the output. The lower bits count the output. */
#define SEEN 0x80000000u

static bool has_penalties(const ech_sampler_row *const row)
{
    return row->repetition != 1.0f || row->frequency != 0.0f || row->presence != 0.0f;
}

bool ech_sampler_edits(const ech_sampler_row *const row)
{
    return row->mask_row >= 0 || row->bias.n != 0 || row->allowed.n != 0 || row->banned.n != 0 ||
           row->bad_words.n != 0 || (row->stop.n != 0 && row->n_done < row->min_tokens) ||
           has_penalties(row) || row->dry_multiplier != 0.0f;
}

static bool is_id(const ech_sampler_edit *const e, const int32_t id)
{
    return id >= 0 && (uint32_t)id < e->args->vocab;
}

/* Prompt, output and pending id side by side, each within the vocabulary. */
static bool load_history(ech_sampler_edit *const e)
{
    const ech_sampler_row *const row = e->row;
    const uint32_t n = row->n_prompt + row->n_output;
    if (n != 0) memcpy(e->ids, e->args->history + row->history, n * sizeof *e->ids);
    e->n_prompt = row->n_prompt;
    e->n_ids = n;
    if (row->pending_slot >= 0) e->ids[e->n_ids++] = e->args->ids[row->pending_slot];
    for (uint32_t i = 0; i < e->n_ids; i++) {
        if (!is_id(e, e->ids[i])) return false;
    }
    return true;
}

static void apply_mask(const ech_sampler_edit *const e)
{
    const uint32_t words = ECH_MASK_WORDS(e->args->vocab);
    const uint32_t *const mask = e->args->masks + (size_t)e->row->mask_row * words;
    for (uint32_t w = 0; w < words; w++) {
        if (mask[w] == 0xffffffffu) continue;
        const uint32_t begin = w * 32;
        const uint32_t end = begin + 32 < e->args->vocab ? begin + 32 : e->args->vocab;
        for (uint32_t id = begin; id < end; id++) {
            if ((mask[w] >> (id - begin) & 1u) == 0) e->logits[id] = -INFINITY;
        }
    }
}

/* Keeps the listed ids: marks them, then bans what has no mark. */
static bool apply_allowed(const ech_sampler_edit *const e)
{
    const int32_t *const ids = e->args->lists + e->row->allowed.offset;
    memset(e->count, 0, e->args->vocab * sizeof *e->count);
    for (uint32_t i = 0; i < e->row->allowed.n; i++) {
        if (!is_id(e, ids[i])) return false;
        e->count[ids[i]] = 1;
    }
    for (uint32_t id = 0; id < e->args->vocab; id++) {
        if (e->count[id] == 0) e->logits[id] = -INFINITY;
    }
    return true;
}

static bool ban(const ech_sampler_edit *const e, const ech_sampler_list list)
{
    const int32_t *const ids = e->args->lists + list.offset;
    for (uint32_t i = 0; i < list.n; i++) {
        if (!is_id(e, ids[i])) return false;
        e->logits[ids[i]] = -INFINITY;
    }
    return true;
}

/* Bans the last id of every word whose other ids end the output. */
static bool ban_words(const ech_sampler_edit *const e)
{
    const int32_t *at = e->args->lists + e->row->bad_words.offset;
    const int32_t *const end = at + e->row->bad_words.n;
    const uint32_t n_output = e->n_ids - e->n_prompt;
    while (at < end) {
        const int32_t len = *at++;
        if (len < 1 || len > end - at) return false;
        const int32_t last = at[len - 1];
        if (!is_id(e, last)) return false;
        const uint32_t head = (uint32_t)len - 1;
        if (head <= n_output &&
            (head == 0 || memcmp(e->ids + e->n_ids - head, at, head * sizeof *at) == 0)) {
            e->logits[last] = -INFINITY;
        }
        at += len;
    }
    return true;
}

static bool add_bias(const ech_sampler_edit *const e)
{
    const int32_t *const pairs = e->args->lists + e->row->bias.offset;
    for (uint32_t i = 0; i + 1 < e->row->bias.n; i += 2) {
        float bias;
        memcpy(&bias, &pairs[i + 1], sizeof bias);
        if (!is_id(e, pairs[i]) || !isfinite(bias)) return false;
        e->logits[pairs[i]] += bias;
    }
    return true;
}

/* Counters are cleared where the history will look: cheaper than the whole array. */
static void clear_counts(const ech_sampler_edit *const e)
{
    for (uint32_t i = 0; i < e->n_ids; i++) {
        e->count[e->ids[i]] = 0;
    }
}

static void penalise(const ech_sampler_edit *const e)
{
    const ech_sampler_row *const row = e->row;
    clear_counts(e);
    for (uint32_t i = 0; i < e->n_ids; i++) {
        uint32_t *const c = &e->count[e->ids[i]];
        *c = (*c | SEEN) + (i >= e->n_prompt ? 1u : 0u);
    }
    for (uint32_t i = 0; i < e->n_ids; i++) {
        const uint32_t c = e->count[e->ids[i]];
        if (c == 0) continue; /* done at an earlier occurrence */
        e->count[e->ids[i]] = 0;
        float *const x = &e->logits[e->ids[i]];
        *x = *x > 0.0f ? *x / row->repetition : *x * row->repetition;
        const uint32_t n = c & ~SEEN;
        *x -= row->frequency * (float)n;
        if (n != 0) *x -= row->presence;
    }
}

/*
 * match[k], k >= 1: how many ids before position n - k equal those that end the history, reading
 * backwards. The Z-algorithm over the reversed ids r[k] = ids[n - 1 - k].
 */
static void match_ends(const int32_t *const ids, uint32_t *const match, const uint32_t n)
{
    const int32_t *const last = ids + n - 1; /* r[k] = last[-k] */
    uint32_t left = 0;
    uint32_t right = 0; /* r[left .. right) equals r[0 .. right - left) */
    match[0] = n;
    for (uint32_t k = 1; k < n; k++) {
        uint32_t z = 0;
        if (k < right) {
            z = match[k - left];
            z = z < right - k ? z : right - k;
        }
        while (k + z < n && *(last - z) == *(last - k - z)) {
            z++;
        }
        match[k] = z;
        if (k + z > right) {
            left = k;
            right = k + z;
        }
    }
}

/* How many of the last n ids come after the last place where they hold the word, at most tail. */
static uint32_t tail_after(const ech_sampler_edit *const e, const uint32_t n, const uint32_t tail,
                           const int32_t *const word, const uint32_t len)
{
    const int32_t *const end = e->ids + e->n_ids;
    for (uint32_t t = 0; t < tail && t + len <= n; t++) {
        if (memcmp(end - t - len, word, len * sizeof *word) == 0) return t;
    }
    return tail;
}

/* Shortens a tail to what follows the last of the sequences in it. False for a malformed list. */
static bool break_at_sequences(const ech_sampler_edit *const e, const uint32_t n,
                               uint32_t *const tail)
{
    const int32_t *at = e->args->lists + e->row->dry_sequences.offset;
    const int32_t *const end = at + e->row->dry_sequences.n;
    while (at < end) {
        const int32_t len = *at++;
        if (len < 1 || len > end - at) return false;
        *tail = tail_after(e, n, *tail, at, (uint32_t)len);
        at += len;
    }
    return true;
}

/* How many last ids hold no breaker, at most n. False for a bad breaker. */
static bool unbroken_tail(const ech_sampler_edit *const e, const uint32_t n, uint32_t *const ret)
{
    const int32_t *const ids = e->args->lists + e->row->dry_breakers.offset;
    clear_counts(e);
    for (uint32_t i = 0; i < e->row->dry_breakers.n; i++) {
        if (!is_id(e, ids[i])) return false;
        e->count[ids[i]] = 1;
    }
    uint32_t tail = 0;
    while (tail < n && e->count[e->ids[e->n_ids - 1 - tail]] == 0) {
        tail++;
    }
    *ret = tail;
    return break_at_sequences(e, n, ret);
}

/*
 * DRY: an id that would carry on a repeat of length L >= allowed loses
 * multiplier * base^(L - allowed), L being its longest.
 */
static bool apply_dry(const ech_sampler_edit *const e)
{
    const ech_sampler_row *const row = e->row;
    const uint32_t n =
        row->dry_window != 0 && row->dry_window < e->n_ids ? row->dry_window : e->n_ids;
    uint32_t tail;
    if (!unbroken_tail(e, n, &tail)) return false;
    if (n < 2 || tail == 0 || tail < row->dry_allowed_length) return true;
    const int32_t *const ids = e->ids + e->n_ids - n;
    match_ends(ids, e->match, n);
    clear_counts(e);
    for (uint32_t k = 1; k < n; k++) {
        const uint32_t len = e->match[k] < tail ? e->match[k] : tail;
        uint32_t *const longest = &e->count[ids[n - k]];
        if (len > 0 && len >= row->dry_allowed_length && len > *longest) *longest = len;
    }
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t len = e->count[ids[i]];
        if (len == 0) continue;
        e->count[ids[i]] = 0;
        const double factor =
            ech_sampler_powi((double)row->dry_base, len - row->dry_allowed_length);
        const double penalty = (double)row->dry_multiplier * factor;
        e->logits[ids[i]] -= (float)(penalty < 1e30 ? penalty : 1e30);
    }
    return true;
}

bool ech_sampler_edit_apply(ech_sampler_edit *const e)
{
    const ech_sampler_row *const row = e->row;
    if (!load_history(e)) return false;
    if (row->mask_row >= 0) apply_mask(e);
    if (row->allowed.n != 0 && !apply_allowed(e)) return false;
    if (!ban(e, row->banned) || !ban_words(e) || !add_bias(e)) return false;
    if (row->n_done < row->min_tokens && !ban(e, row->stop)) return false;
    if (has_penalties(row)) penalise(e);
    return row->dry_multiplier == 0.0f || apply_dry(e);
}
