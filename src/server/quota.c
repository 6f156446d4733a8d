/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a key has used, held against its limits; see auth.h. Buckets that fill with time: one
 * minute's worth at most. A request costs one of the first at its beginning, and its tokens of the
 * second at its end, when they are known; a key whose tokens are below 0 waits until they are not.
 */
#include <math.h>

#include "src/base/clock.h"
#include "src/server/auth.h"

/*
 * Token buckets. Each fills evenly and holds a minute's worth at most, so a client that was silent
 * for an hour may send what a minute allows at once, not what an hour does.
 */
static double filled(const double level, const uint32_t per_minute, const double seconds)
{
    const double full = per_minute;
    return fmin(full, level + full * seconds / 60);
}

/* The first look finds both full: a key starts with its minute. */
static void fill_up(ech_quota *const q, const ech_key_limits *const l, const int64_t now_ns)
{
    const double seconds = q->filled_ns == 0 ? 60 : (double)(now_ns - q->filled_ns) * 1e-9;
    q->requests = filled(q->requests, l->requests_per_minute, seconds);
    q->tokens = filled(q->tokens, l->tokens_per_minute, seconds);
    q->filled_ns = now_ns;
}

/* Seconds until a bucket holds so much, at least one. */
static int wait_for(const double level, const double wanted, const uint32_t per_minute)
{
    return 1 + (int)((wanted - level) * 60 / per_minute);
}

/*
 * A request is let in while there is anything left, and its tokens are taken when they are known
 * (ech_quota_give): how long an answer gets can't be said before. So one request may overdraw, and
 * the next ones wait until the bucket is above zero again.
 */
bool ech_quota_take(ech_keys *const k, const ech_key *const key, const int64_t now_ns,
                    const char **const ret_why, int *const ret_wait_s)
{
    const ech_key_limits *const l = &key->limits;
    ech_quota *const q = key->quota;
    (void)pthread_mutex_lock(&k->lock);
    fill_up(q, l, now_ns);
    bool is_taken = false;
    if (l->max_requests != 0 && q->running >= l->max_requests) {
        *ret_why = "max-requests";
        *ret_wait_s = 1;
    } else if (l->requests_per_minute != 0 && q->requests < 1) {
        *ret_why = "requests-per-minute";
        *ret_wait_s = wait_for(q->requests, 1, l->requests_per_minute);
    } else if (l->tokens_per_minute != 0 && q->tokens <= 0) {
        *ret_why = "tokens-per-minute";
        *ret_wait_s = wait_for(q->tokens, 0, l->tokens_per_minute);
    } else {
        is_taken = true;
        q->running++;
        q->requests -= 1;
    }
    q->n_requests += is_taken;
    q->n_refused += !is_taken;
    (void)pthread_mutex_unlock(&k->lock);
    return is_taken;
}

void ech_quota_give(ech_keys *const k, const ech_key *const key, const uint32_t prompt_tokens,
                    const uint32_t completion_tokens)
{
    ech_quota *const q = key->quota;
    (void)pthread_mutex_lock(&k->lock);
    q->running--;
    q->tokens -= (double)prompt_tokens + completion_tokens;
    q->n_prompt_tokens += prompt_tokens;
    q->n_completion_tokens += completion_tokens;
    (void)pthread_mutex_unlock(&k->lock);
}
