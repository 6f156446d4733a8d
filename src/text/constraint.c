/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The public side of constraints: compiling, states, masks.
 *
 * A constraint's program never changes. Its machine and its masks are caches that grow as states
 * ask; the constraint's lock guards them and the list of its states. Numbers of configs change
 * when the caches are emptied, so every state is on that list and has its number replaced then.
 *
 * Left out: finding markers in text for anybody else (the parsers' work), and what a budget of
 * thinking tokens should be.
 *
 * Threads: any; each function takes the lock where it touches the machine, and a state belongs to
 * one thread at a time. refs is atomic. The lock is held for one token or one mask, not for a
 * request.
 *
 * Invariant: a state's config is a number of the machine as it is now. Nothing but c->start and the
 * states on the list keeps a config across an unlock.
 */
#include "echelon/constraint.h"

#include <pthread.h>

#include "src/base/atomic.h"
#include "src/base/error.h"
#include "src/text/constraint_compose.h"
#include "src/text/constraint_mask.h"

struct ech_constraint {
    uint32_t refs;
    ech_mask_vocab *vocab;
    ech_constraint_options options;
    ech_program program;
    ech_reasoning_start reasoning;
    bool prefers_reasoning; /* free text could swallow the begin marker: see settle_reasoning */
    char *end_marker;       /* plain spelling of reasoning_end */
    uint32_t end_len;
    uint32_t *closers; /* entries that end reasoning by force, see ech_composed */
    uint32_t n_closers;

    pthread_mutex_t lock;
    ech_machine machine;          /* guarded by lock */
    ech_masks masks;              /* guarded by lock */
    ech_constraint_state *states; /* guarded by lock */
    uint32_t start;               /* guarded by lock: a config */
    uint64_t flushes;             /* guarded by lock */
};

struct ech_constraint_state {
    ech_constraint *constraint;
    ech_constraint_state *prev, *next; /* guarded by the constraint's lock */
    uint32_t config;
    bool has_ended;
    bool is_closing;    /* the end marker of reasoning is being forced */
    uint8_t utf8_need;  /* bytes that the last character of reasoning still lacks */
    uint8_t utf8_grace; /* tokens it may still take */
    uint32_t marker_at; /* bytes of the end marker that the text ends with */
    int64_t left;       /* tokens of reasoning left, -1: no budget */
};

ech_constraint_spec ech_constraint_spec_default(void)
{
    return (ech_constraint_spec){ .struct_size = sizeof(ech_constraint_spec) };
}

ech_constraint_options ech_constraint_options_default(void)
{
    return (ech_constraint_options){
        .struct_size = sizeof(ech_constraint_options),
        .max_source_bytes = (size_t)1 << 20,
        .max_states = 500000,
        .max_depth = 32,
        .max_whitespace = 64,
        .max_digits = 40,
        .cache_bytes = (size_t)32 << 20,
        .warm_masks = 256,
    };
}

/* ---- compiling ---- */

static void destroy(ech_constraint *const c)
{
    ech_masks_fini(&c->masks);
    if (c->machine.program != NULL) ech_machine_fini(&c->machine);
    ech_program_fini(&c->program);
    free(c->closers);
    free(c->end_marker);
    ech_mask_vocab_unref(&c->vocab);
    (void)pthread_mutex_destroy(&c->lock);
    free(c);
}

/*
 * DEAD together with machine.rc is a lack of room, not an answer: it must not be reported as a
 * token that is not allowed.
 */
static ech_status machine_error(const ech_constraint *const c, ech_error *const err)
{
    if (c->machine.rc == ECH_ELIMIT) {
        return ech_fail(err, ECH_ELIMIT,
                        "following a constraint: it can be read in too many ways at "
                        "once, make it less ambiguous or raise cache_bytes");
    }
    return ech_fail(err, c->machine.rc, "following a constraint: out of memory");
}

/* How deep a stack of rules may get: JSON counts its own nesting, a grammar every rule. */
static uint32_t depth_limit(const ech_constraint_spec *const spec,
                            const ech_constraint_options *const options)
{
    return spec->content_kind == ECH_CONSTRAINT_GBNF && options->max_depth < 1000
               ? 1000
               : options->max_depth;
}

static ech_status build(ech_constraint *const c, const ech_constraint_spec *const spec,
                        ech_error *const err)
{
    ech_cx_graph g;
    ech_cx_graph_init(&g, c->options.max_states);
    memcpy(g.reach, c->vocab->reach, sizeof g.reach);
    ech_composed composed = { 0 };
    ech_status rc = ech_compose(&g, c->vocab, spec, &c->options, &composed, err);
    if (rc == ECH_OK) {
        rc = ech_program_build(&g, composed.root, c->options.max_states,
                               depth_limit(spec, &c->options), &c->program, NULL, err);
    }
    ech_cx_graph_fini(&g);
    c->closers = composed.closers;
    c->n_closers = composed.n_closers;
    if (rc != ECH_OK) return rc;
    for (uint32_t i = 0; i < c->n_closers; i++) {
        c->closers[i] = c->program.rule_entry[c->closers[i]];
    }
    c->reasoning = spec->reasoning;
    c->prefers_reasoning =
        spec->reasoning == ECH_THINKING_OPTIONAL && spec->content_kind == ECH_CONSTRAINT_TEXT;
    c->end_len = (uint32_t)spec->reasoning_end_len;
    c->end_marker = malloc(c->end_len + (size_t)1);
    if (c->end_marker != NULL && c->end_len > 0) {
        memcpy(c->end_marker, spec->reasoning_end, c->end_len);
    }
    /* The cache may grow past its size within one mask, but not without bound. */
    rc = c->end_marker == NULL ? ECH_ENOMEM
                               : ech_machine_init(&c->machine, &c->program, c->vocab->reach,
                                                  c->options.cache_bytes * 2 + ((size_t)16 << 20));
    if (rc == ECH_OK) rc = ech_masks_init(&c->masks, c->vocab, &c->machine);
    if (rc != ECH_OK) return ech_fail(err, rc, "compiling a constraint: out of memory");
    c->start = ech_machine_start(&c->machine);
    return c->machine.rc == ECH_OK ? ECH_OK : machine_error(c, err);
}

/*
 * Computes the masks nearest the start, by bytes, so that the first request finds them. Stops where
 * the cache is half full. What fails here will fail again, with a message, when it is needed. A
 * breadth-first walk over stand-ins, one successor per class of bytes. The queue itself is the set
 * of what was seen; it is short (warm_masks), so it is searched.
 */
static void warm(ech_constraint *const c)
{
    ech_machine *const m = &c->machine;
    const uint32_t most = c->options.warm_masks;
    uint32_t *queue = NULL;
    uint32_t n = 0, cap = 0;
    if (most == 0 || !ECH_VEC_GROW(queue, cap, 0, 1)) return;
    const ech_mask *masks[ECH_CX_REACHES];
    queue[n++] = ech_machine_rough(m, c->start, 0);
    for (uint32_t i = 0; i < n && i < most && m->rc == ECH_OK; i++) {
        if (!ech_masks_get(&c->masks, queue[i], masks)) break;
        if (ech_machine_bytes(m) + c->masks.bytes > c->options.cache_bytes / 2) break;
        for (uint32_t k = 0; k < m->program->n_classes && n < most && m->rc == ECH_OK; k++) {
            const uint32_t to = ech_machine_rough(m, ech_machine_step(m, queue[i], k), 0);
            bool is_new = to != ECH_CONFIG_DEAD && m->configs[to].mask[0] == 0;
            for (uint32_t q = i + 1; q < n && is_new; q++)
                is_new = queue[q] != to;
            if (!is_new) continue;
            if (!ECH_VEC_GROW(queue, cap, n, 1)) break;
            queue[n++] = to;
        }
    }
    m->rc = ECH_OK;
    free(queue);
    c->masks.hits = c->masks.misses = 0;
}

ech_status ech_constraint_compile(ech_mask_vocab *const vocab,
                                  const ech_constraint_spec *const spec,
                                  const ech_constraint_options *const options,
                                  ech_constraint **const ret_constraint, ech_error *const err)
{
    ech_constraint *const c = calloc(1, sizeof *c);
    if (c == NULL) return ech_fail(err, ECH_ENOMEM, "compiling a constraint: out of memory");
    c->refs = 1;
    c->options = options != NULL ? *options : ech_constraint_options_default();
    c->vocab = ech_mask_vocab_ref(vocab);
    (void)pthread_mutex_init(&c->lock, NULL);
    const ech_status rc = build(c, spec, err);
    if (rc != ECH_OK) {
        destroy(c);
        return rc;
    }
    warm(c);
    *ret_constraint = c;
    return ECH_OK;
}

ech_constraint *ech_constraint_ref(ech_constraint *const c)
{
    (void)ech_fetch_add_relaxed(&c->refs, 1);
    return c;
}

void ech_constraint_unref(ech_constraint **const constraint)
{
    if (constraint == NULL || *constraint == NULL) return;
    ech_constraint *const c = *constraint;
    *constraint = NULL;
    /* Acquire and release: whoever frees sees what all other holders wrote. */
    if (ech_fetch_add(&c->refs, UINT32_MAX) == 1) destroy(c);
}

ech_mask_vocab *ech_constraint_vocab(const ech_constraint *const c)
{
    return c->vocab;
}

/* ---- the lock ---- */

/* All places that hold a config: what is forgotten here would point anywhere after a collection. */
static void visit_configs(void *const user, ech_machine_keep *const keep, void *const keeper)
{
    ech_constraint *const c = user;
    keep(keeper, &c->start);
    for (ech_constraint_state *s = c->states; s != NULL; s = s->next)
        keep(keeper, &s->config);
}

/*
 * Takes the lock, and empties the caches when they are full. Emptying happens here and nowhere
 * else, so between lock and unlock numbers of configs are stable. A collection that fails leaves
 * everything as it was; the machine's own limit is higher than cache_bytes.
 */
static void lock(ech_constraint *const c)
{
    (void)pthread_mutex_lock(&c->lock);
    c->machine.rc = ECH_OK;
    if (ech_machine_bytes(&c->machine) + c->masks.bytes <= c->options.cache_bytes) return;
    if (ech_machine_collect(&c->machine, visit_configs, c) != ECH_OK) return;
    ech_masks_clear(&c->masks);
    c->flushes++;
}

static void unlock(ech_constraint *const c)
{
    (void)pthread_mutex_unlock(&c->lock);
}

ech_constraint_stats ech_constraint_get_stats(ech_constraint *const c)
{
    lock(c);
    const ech_constraint_stats stats = {
        .n_instructions = c->program.n_instrs,
        .n_configs = c->machine.n_configs,
        .n_masks = c->masks.n,
        .cache_bytes = ech_machine_bytes(&c->machine) + c->masks.bytes,
        .mask_hits = c->masks.hits,
        .mask_misses = c->masks.misses,
        .flushes = c->flushes,
    };
    unlock(c);
    return stats;
}

/* ---- phases ---- */

/*
 * The role of the innermost rule with one that an item is in. Frames of calls keep the rule's
 * number in value.
 */
static ech_cx_role role_of_item(const ech_constraint *const c, const ech_item item)
{
    const ech_machine *const m = &c->machine;
    for (uint32_t at = item.stack; at != 0; at = m->frames[at].below) {
        const ech_frame *const f = &m->frames[at];
        if (f->tag & ECH_FRAME_LOOP) continue;
        const uint8_t role = c->program.rule_role[f->value];
        if (role != ECH_ROLE_NONE) return (ech_cx_role)role;
    }
    return ECH_ROLE_NONE;
}

/* Readings of one text agree in their role, but for the beginning of optional reasoning. */
static ech_cx_role role_of_config(const ech_constraint *const c, const uint32_t config)
{
    const ech_config *const k = &c->machine.configs[config];
    for (uint32_t i = 0; i < k->n; i++) {
        const ech_cx_role role = role_of_item(c, c->machine.items[k->first + i]);
        if (role != ECH_ROLE_NONE) return role;
    }
    return ECH_ROLE_NONE;
}

/*
 * Free text takes any bytes, the begin marker of reasoning too. Once the marker is complete it is
 * one: readings as free text are dropped.
 */
static uint32_t settle_reasoning(ech_constraint *const c, const uint32_t config)
{
    ech_machine *const m = &c->machine;
    const ech_config k = m->configs[config];
    m->n_found = 0;
    for (uint32_t i = 0; i < k.n; i++) {
        const ech_item item = m->items[k.first + i];
        if (role_of_item(c, item) != ECH_ROLE_REASONING) continue;
        if (!ECH_VEC_GROW(m->found, m->cap_found, m->n_found, 1))
            m->rc = ECH_ENOMEM;
        else
            m->found[m->n_found++] = item;
    }
    if (m->n_found == 0 || m->n_found == k.n) return config;
    return ech_machine_config_of_found(m);
}

/* ---- states ---- */

static void link_state(ech_constraint *const c, ech_constraint_state *const s)
{
    s->prev = NULL;
    s->next = c->states;
    if (c->states != NULL) c->states->prev = s;
    c->states = s;
}

static void unlink_state(ech_constraint *const c, ech_constraint_state *const s)
{
    if (s->prev != NULL)
        s->prev->next = s->next;
    else
        c->states = s->next;
    if (s->next != NULL) s->next->prev = s->prev;
}

/*
 * Replaces the config by the one that ends reasoning. closers[k] is the entry of a text that
 * completes the end marker of which k bytes are there already; an empty stack, because what follows
 * reasoning is part of that entry.
 */
static ech_status force_close(ech_constraint *const c, ech_constraint_state *const s,
                              ech_error *const err)
{
    const uint32_t at = s->marker_at < c->n_closers ? s->marker_at : 0;
    const uint32_t config = ech_machine_config_at(&c->machine, c->closers[at]);
    if (c->machine.rc != ECH_OK) return machine_error(c, err);
    s->config = config;
    s->is_closing = true;
    return ECH_OK;
}

/* utf8_grace 3: a character lacks at most three bytes, and a token may bring only one of them. */
ech_status ech_constraint_state_create(ech_constraint *const c, const int64_t thinking_budget,
                                       ech_constraint_state **const ret_state, ech_error *const err)
{
    ech_constraint_state *const s = calloc(1, sizeof *s);
    if (s == NULL) return ech_fail(err, ECH_ENOMEM, "starting a constraint: out of memory");
    s->constraint = c;
    s->left = thinking_budget < 0 ? -1 : thinking_budget;
    s->utf8_grace = 3;
    lock(c);
    s->config = c->start;
    ech_status rc = ECH_OK;
    if (c->reasoning == ECH_THINKING_OPEN && s->left == 0) rc = force_close(c, s, err);
    if (rc == ECH_OK) link_state(c, s);
    unlock(c);
    if (rc != ECH_OK) {
        free(s);
        return rc;
    }
    (void)ech_constraint_ref(c);
    *ret_state = s;
    return ECH_OK;
}

ech_status ech_constraint_state_clone(const ech_constraint_state *const state,
                                      ech_constraint_state **const ret_state, ech_error *const err)
{
    ech_constraint_state *const s = malloc(sizeof *s);
    if (s == NULL) return ech_fail(err, ECH_ENOMEM, "copying a constraint's state: out of memory");
    ech_constraint *const c = ech_constraint_ref(state->constraint);
    lock(c);
    *s = *state;
    link_state(c, s);
    unlock(c);
    *ret_state = s;
    return ECH_OK;
}

void ech_constraint_state_assign(ech_constraint_state *const dst,
                                 const ech_constraint_state *const src)
{
    ECH_ASSERT(dst->constraint == src->constraint);
    lock(dst->constraint);
    ech_constraint_state *const prev = dst->prev, *const next = dst->next;
    *dst = *src;
    dst->prev = prev;
    dst->next = next;
    unlock(dst->constraint);
}

void ech_constraint_state_destroy(ech_constraint_state **const state)
{
    if (state == NULL || *state == NULL) return;
    ech_constraint_state *const s = *state;
    *state = NULL;
    ech_constraint *c = s->constraint;
    lock(c);
    unlink_state(c, s);
    unlock(c);
    free(s);
    ech_constraint_unref(&c);
}

/* ---- accepting ---- */

/*
 * How many bytes of the end marker the text ends with after one more byte. Knuth, Morris and Pratt
 * without the table: the fall-back is computed when it is needed.
 */
static uint32_t advance_marker(const ech_constraint *const c, uint32_t at, const char byte)
{
    for (;;) {
        if (at < c->end_len && c->end_marker[at] == byte) return at + 1;
        if (at == 0) return 0;
        /* The next shorter end of what was matched that also begins the marker; markers are short.
         */
        uint32_t shorter = at - 1;
        while (shorter > 0 && memcmp(c->end_marker, c->end_marker + at - shorter, shorter) != 0) {
            shorter--;
        }
        at = shorter;
    }
}

/*
 * Only counts what is missing, so that a forced end never cuts a character in two. The bytes were
 * allowed by the automaton; they are not judged here.
 */
static uint8_t advance_utf8(const uint8_t need, const uint8_t byte)
{
    if (byte < 0x80 || byte >= 0xF5) return 0;
    if (byte < 0xC0) return need > 0 ? need - 1 : 0;
    return byte < 0xE0 ? 1 : byte < 0xF0 ? 2 : 3;
}

/*
 * After a token of free reasoning: counts it, and closes reasoning when the budget is spent and the
 * last character is whole, or has had its grace.
 */
static ech_status count_reasoning(ech_constraint *const c, ech_constraint_state *const s,
                                  const ech_str bytes, const bool was_reasoning,
                                  ech_error *const err)
{
    if (s->is_closing || role_of_config(c, s->config) != ECH_ROLE_REASONING) return ECH_OK;
    for (size_t i = 0; was_reasoning && i < bytes.len; i++) {
        s->marker_at = advance_marker(c, s->marker_at, bytes.ptr[i]);
        s->utf8_need = advance_utf8(s->utf8_need, (uint8_t)bytes.ptr[i]);
    }
    if (s->left < 0) return ECH_OK;
    if (was_reasoning && s->left > 0)
        s->left--;
    else if (was_reasoning && s->utf8_grace > 0)
        s->utf8_grace--;
    if (s->left > 0 || (s->utf8_need > 0 && s->utf8_grace > 0)) return ECH_OK;
    return force_close(c, s, err);
}

/*
 * Follows bytes from the state's config; *ret_taken bytes were right. s is changed on success.
 * Works on a copy of the state and stores it last: an error leaves the state where it was, so the
 * caller may try another token.
 */
static ech_status take_bytes(ech_constraint *const c, ech_constraint_state *const s,
                             const ech_str bytes, size_t *const ret_taken, ech_error *const err)
{
    ech_machine *const m = &c->machine;
    uint32_t config = s->config;
    for (size_t i = 0; i < bytes.len; i++) {
        config = ech_machine_step_once(m, config, (uint8_t)bytes.ptr[i]);
        if (m->rc != ECH_OK) return machine_error(c, err);
        *ret_taken = i;
        if (config == ECH_CONFIG_DEAD) return ECH_EINVAL;
    }
    *ret_taken = bytes.len;
    ech_constraint_state after = *s;
    const bool was_reasoning = role_of_config(c, s->config) == ECH_ROLE_REASONING;
    after.config = c->prefers_reasoning ? settle_reasoning(c, config) : config;
    if (m->rc != ECH_OK) return machine_error(c, err);
    if (c->n_closers > 0) ECH_TRY(count_reasoning(c, &after, bytes, was_reasoning, err));
    if (after.is_closing && role_of_config(c, after.config) != ECH_ROLE_REASONING) {
        after.is_closing = false;
    }
    *s = after;
    return ECH_OK;
}

/* A further eos after the end is taken as well. */
static ech_status accept_eos(ech_constraint *const c, ech_constraint_state *const s,
                             ech_error *const err)
{
    if (!s->has_ended && !ech_machine_accepts(&c->machine, s->config)) {
        return ech_fail(err, ECH_EINVAL, "following a constraint: the text may not end here");
    }
    s->has_ended = true;
    return ECH_OK;
}

static ech_status accept_token(ech_constraint *const c, ech_constraint_state *const s,
                               const int32_t id, ech_error *const err)
{
    const ech_mask_vocab *const v = c->vocab;
    if (id < 0 || (uint32_t)id >= v->n_ids) {
        return ech_fail(err, ECH_EINVAL, "following a constraint: there is no token %d", (int)id);
    }
    if (v->is_eos[id]) return accept_eos(c, s, err);
    if (s->has_ended || v->kinds[id] == ECH_MASK_TOKEN_UNUSED) {
        return ech_fail(err, ECH_EINVAL, "following a constraint: token %d is not allowed here, %s",
                        (int)id, s->has_ended ? "the text has ended" : "it is never allowed");
    }
    size_t taken = 0;
    const ech_status rc = take_bytes(c, s, ech_mask_vocab_bytes(v, id), &taken, err);
    if (rc != ECH_EINVAL) return rc;
    return ech_fail(err, rc,
                    "following a constraint: token %d is not allowed here, its byte %zu is "
                    "wrong",
                    (int)id, taken);
}

ech_status ech_constraint_state_accept(ech_constraint_state *const s, const int32_t id,
                                       ech_error *const err)
{
    lock(s->constraint);
    const ech_status rc = accept_token(s->constraint, s, id, err);
    unlock(s->constraint);
    return rc;
}

ech_status ech_constraint_state_accept_bytes(ech_constraint_state *const s, const char *const bytes,
                                             const size_t len, size_t *const ret_accepted,
                                             ech_error *const err)
{
    size_t taken = 0;
    ech_status rc = ECH_OK;
    lock(s->constraint);
    if (s->has_ended && len > 0)
        rc = ECH_EINVAL;
    else if (len > 0)
        rc = take_bytes(s->constraint, s, (ech_str){ bytes, len }, &taken, err);
    unlock(s->constraint);
    if (ret_accepted != NULL) *ret_accepted = taken;
    if (rc != ECH_EINVAL) return rc;
    return ech_fail_at(err, rc, 0, 0, (int64_t)taken,
                       "following a constraint: byte %zu of the text is not allowed", taken);
}

/* ---- questions ---- */

bool ech_constraint_state_can_end(const ech_constraint_state *const s)
{
    lock(s->constraint);
    const bool answer = s->has_ended || ech_machine_accepts(&s->constraint->machine, s->config);
    unlock(s->constraint);
    return answer;
}

bool ech_constraint_state_is_complete(const ech_constraint_state *const s)
{
    lock(s->constraint);
    const ech_machine *const m = &s->constraint->machine;
    const bool answer = s->has_ended || (ech_machine_accepts(m, s->config) &&
                                         !ech_machine_can_continue(m, s->config));
    unlock(s->constraint);
    return answer;
}

ech_constraint_phase ech_constraint_state_phase(const ech_constraint_state *const s)
{
    if (s->has_ended) return ECH_PHASE_ENDED;
    lock(s->constraint);
    const ech_cx_role role = role_of_config(s->constraint, s->config);
    unlock(s->constraint);
    if (role == ECH_ROLE_REASONING) return ECH_PHASE_REASONING;
    return role == ECH_ROLE_CALL ? ECH_PHASE_CALL : ECH_PHASE_CONTENT;
}

static void add_eos(const ech_mask_vocab *const v, uint32_t *const words)
{
    for (uint32_t i = 0; i < v->n_eos; i++) {
        words[v->eos[i] >> 5] |= UINT32_C(1) << (v->eos[i] & 31);
    }
}

static ech_status write_mask(ech_constraint *const c, const ech_constraint_state *const s,
                             uint32_t *const words, ech_error *const err)
{
    const ech_mask *masks[ECH_CX_REACHES];
    if (!ech_masks_get(&c->masks, s->config, masks)) return machine_error(c, err);
    const bool can_end = ech_machine_accepts(&c->machine, s->config) && c->vocab->n_eos > 0;
    if (ech_masks_count(masks) == 0 && !can_end) {
        return ech_fail(err, ECH_EINVAL,
                        "following a constraint: the vocabulary has no token that "
                        "goes on from here");
    }
    ech_masks_write(&c->masks, masks, words);
    if (can_end) add_eos(c->vocab, words);
    return ECH_OK;
}

/*
 * words beyond the vocabulary's (padding of the model's output) stay 0: such ids are never allowed.
 */
ech_status ech_constraint_state_mask(ech_constraint_state *const s, uint32_t *const words,
                                     const size_t n_words, ech_error *const err)
{
    ech_constraint *const c = s->constraint;
    memset(words, 0, n_words * sizeof *words);
    if (n_words < c->vocab->n_words) {
        return ech_fail(err, ECH_EINVAL, "writing a mask: %zu words given, %u are needed", n_words,
                        c->vocab->n_words);
    }
    if (s->has_ended) {
        add_eos(c->vocab, words);
        return ECH_OK;
    }
    lock(c);
    const ech_status rc = write_mask(c, s, words, err);
    unlock(c);
    return rc;
}

/*
 * -1 is always a right answer, just a slower one; so a mask that can't be computed is no error
 * here, the next call for the mask will say so.
 */
int32_t ech_constraint_state_forced(ech_constraint_state *const s)
{
    ech_constraint *const c = s->constraint;
    const ech_mask_vocab *const v = c->vocab;
    if (s->has_ended) return v->n_eos == 1 ? v->eos[0] : -1;
    lock(c);
    const ech_mask *masks[ECH_CX_REACHES];
    int32_t id = -1;
    if (ech_masks_get(&c->masks, s->config, masks)) {
        const uint32_t n_eos = ech_machine_accepts(&c->machine, s->config) ? v->n_eos : 0;
        if (n_eos == 0)
            id = ech_masks_only(&c->masks, masks);
        else if (ech_masks_count(masks) == 0 && n_eos == 1)
            id = v->eos[0];
    }
    unlock(c);
    return id;
}
