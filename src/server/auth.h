/* SPDX-License-Identifier: Apache-2.0 */
/*
 * API keys and what each may use: lines of a file, or one key from an option.
 *
 *     # NAME KEY [SETTING=VALUE …]     or KEY alone
 *     alice  sk-1f…  max-requests=4 tokens-per-minute=60000 weight=2 priority=1
 *
 * Keys are compared in constant time. A reload swaps the whole set; sets that were replaced are
 * kept until the end, since an exchange may still hold a key of theirs. What was used is counted by
 * name, so that a reload, or a second key of the same name, starts nothing anew.
 */
#ifndef ECH_SERVER_AUTH_H
#define ECH_SERVER_AUTH_H

#include <pthread.h>

#include "src/base/arena.h"

/* 0: no limit. */
typedef struct ech_key_limits {
    uint32_t max_requests; /* at the same time */
    uint32_t requests_per_minute;
    uint32_t tokens_per_minute; /* of prompts and answers */
    uint32_t weight;            /* of its fair share; default 1 */
    int32_t priority;           /* the most urgent that it may ask for; lower is more urgent */
    bool has_priority;
} ech_key_limits;

/* What a name has used. Guarded by the keys' lock. */
typedef struct ech_quota {
    struct ech_quota *next;
    const char *name;
    uint32_t running;
    double requests, tokens; /* that may be used now; tokens may be below 0: they are counted after
                                their use */
    int64_t filled_ns;       /* when the two were last filled up; 0: never, they are full */
    uint64_t n_requests, n_refused, n_prompt_tokens, n_completion_tokens;
} ech_quota;

typedef struct ech_key {
    const char *name;
    const char *secret;
    ech_key_limits limits;
    ech_quota *quota;
} ech_key;

typedef struct ech_key_set {
    const ech_key *keys; /* [n] */
    size_t n;
} ech_key_set;

typedef struct ech_keys {
    ech_arena arena;            /* of every set that there was */
    const ech_key_set *current; /* atomic pointer; NULL: no key is asked for */
    pthread_mutex_t lock;
    ech_quota *quotas; /* one per name; only ever grows; guarded by the lock */
} ech_keys;

void ech_keys_init(ech_keys *k);
/* Reads the file (NULL: none) and the option (NULL: none) and makes them current. On failure the
 * old set stays. Not on two threads at once. */
ech_status ech_keys_load(ech_keys *k, const char *path, const char *option, ech_error *err);
bool ech_keys_required(const ech_keys *k);
/* The key that equals secret; NULL when none does. */
const ech_key *ech_keys_find(const ech_keys *k, const char *secret);
void ech_keys_fini(ech_keys *k);

/*
 * A request of this key begins: false when a limit is reached; then *ret_why names it and
 * *ret_wait_s is when it may be worth trying again. true: to be given back when it is over.
 */
bool ech_quota_take(ech_keys *k, const ech_key *key, int64_t now_ns, const char **ret_why,
                    int *ret_wait_s);
void ech_quota_give(ech_keys *k, const ech_key *key, uint32_t prompt_tokens,
                    uint32_t completion_tokens);

#endif
