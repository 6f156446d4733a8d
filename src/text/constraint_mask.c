/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Computing masks. The cost is the number of trie nodes that the walk visits, a few nanoseconds
 * each. Inside strings that would be the whole vocabulary, so slices come first: slice_level finds
 * out how many ordinary characters the automaton takes here, whatever they are. When the answer is
 * exact (k of them always go, k + 1 never do), the slice of that level needs no walk.
 *
 * Invariants: a mask holds exactly the ids of which every byte can be read from its config, the eos
 * ids left out; and it is the same for a config and its stand-in (ech_machine_rough), which is
 * where it is kept. Masks of ordinary tokens and of very long ones are separate, because the
 * stand-in for few bytes ahead joins many more configs than the one for the longest token.
 *
 * The memory is counted in s->bytes and never freed one by one: the constraint clears everything
 * when its cache is full. Left out: locking (the constraint's lock is held), eos, and phases.
 */
#include "src/text/constraint_mask.h"

#include "src/base/error.h"

/*
 * path has a place for each byte of the longest token and one before the first; ids has room for
 * all ids, so that the walk writes without a check.
 */
ech_status ech_masks_init(ech_masks *const s, const ech_mask_vocab *const vocab,
                          ech_machine *const machine)
{
    *s = (ech_masks){ .vocab = vocab, .machine = machine };
    s->path = malloc(((size_t)vocab->token_len + 1) * sizeof *s->path);
    s->ids = malloc(((size_t)vocab->n_ids + 1) * sizeof *s->ids);
    if (s->path == NULL || s->ids == NULL) {
        ech_masks_fini(s);
        return ECH_ENOMEM;
    }
    return ECH_OK;
}

static void free_mask(ech_mask *const mask)
{
    free(mask->ids);
    free(mask->bits);
}

void ech_masks_clear(ech_masks *const s)
{
    for (uint32_t i = 0; i < s->n; i++)
        free_mask(&s->list[i]);
    for (uint32_t i = 0; i < s->n_locals; i++) {
        free_mask(&s->locals[i].mask);
        free(s->locals[i].exits);
    }
    s->n = s->n_locals = 0;
    s->bytes = 0;
}

void ech_masks_fini(ech_masks *const s)
{
    ech_masks_clear(s);
    free(s->list);
    free(s->locals);
    free(s->path);
    free(s->ids);
    free(s->exits);
    *s = (ech_masks){ 0 };
}

/* ---- slices ---- */

/*
 * What happens to a config under one character of a kind, whichever it is. A relative config that
 * reaches its exit may be refused or not, so that is MIXED.
 */
typedef enum outcome {
    OUT_DIES,   /* every one is refused */
    OUT_MIXED,  /* some are refused */
    OUT_SINGLE, /* all are taken and lead to one config */
    OUT_MANY,   /* all are taken, to several configs */
} outcome;

#define MAX_TARGETS 48

typedef struct targets {
    uint32_t configs[MAX_TARGETS];
    uint32_t n;
    bool died, overflow;
} targets;

/*
 * Linear search: there are at most MAX_TARGETS, and beyond that the question is given up as
 * overflow.
 */
static void add_target(targets *const t, const uint32_t config)
{
    if (config == ECH_CONFIG_DEAD) {
        t->died = true;
        return;
    }
    for (uint32_t i = 0; i < t->n; i++) {
        if (t->configs[i] == config) return;
    }
    if (t->n == MAX_TARGETS)
        t->overflow = true;
    else
        t->configs[t->n++] = config;
}

/*
 * Steps every config of from by every byte of [first, last], classes once. A class is stepped once
 * however many of its bytes lie in the range. All bytes of a class behave alike, so a class that
 * reaches beyond the range answers for the range too.
 */
static void step_range(ech_machine *const m, const targets *const from, const unsigned first,
                       const unsigned last, targets *const to)
{
    ech_byteset done = { { 0 } };
    for (unsigned b = first; b <= last; b++) {
        const uint8_t c = m->program->class_of[b];
        if (ech_byteset_has(&done, c)) continue;
        ech_byteset_add(&done, c, c);
        for (uint32_t i = 0; i < from->n; i++) {
            add_target(to, ech_machine_step(m, from->configs[i], c));
        }
    }
}

/* Leads of UTF-8 with the range of the second byte and the number of bytes after that. */
static const struct {
    uint8_t first, last, low, high, more;
} LEADS[] = {
    { 0xC2, 0xDF, 0x80, 0xBF, 0 }, { 0xE0, 0xE0, 0xA0, 0xBF, 1 }, { 0xE1, 0xEC, 0x80, 0xBF, 1 },
    { 0xED, 0xED, 0x80, 0x9F, 1 }, { 0xEE, 0xEF, 0x80, 0xBF, 1 }, { 0xF0, 0xF0, 0x90, 0xBF, 2 },
    { 0xF1, 0xF3, 0x80, 0xBF, 2 }, { 0xF4, 0xF4, 0x80, 0x8F, 2 },
};

/*
 * Reads one code point of the kind, byte by byte over all well-formed UTF-8 sequences (Unicode's
 * table 3-7: no overlong forms, no surrogates), and collects where that leads. died says that some
 * of them are refused, which makes the kind useless as a slice here.
 */
static void step_plain(ech_machine *const m, const targets *const from, targets *const to)
{
    step_range(m, from, 0x20, '"' - 1, to);
    step_range(m, from, '"' + 1, '\\' - 1, to);
    step_range(m, from, '\\' + 1, 0x7F, to);
    for (size_t i = 0; i < sizeof LEADS / sizeof LEADS[0]; i++) {
        if (to->died && to->n > 0) return; /* mixed already */
        targets a = { .n = 0 }, b = { .n = 0 };
        step_range(m, from, LEADS[i].first, LEADS[i].last, &a);
        step_range(m, &a, LEADS[i].low, LEADS[i].high, LEADS[i].more == 0 ? to : &b);
        for (unsigned k = LEADS[i].more; k > 0; k--) {
            targets c = { .n = 0 };
            step_range(m, &b, 0x80, 0xBF, k == 1 ? to : &c);
            to->died |= b.died;
            to->overflow |= b.overflow;
            b = c;
        }
        to->died |= a.died;
        to->overflow |= a.overflow;
    }
}

static void step_space(ech_machine *const m, const targets *const from, targets *const to)
{
    static const char SPACES[] = " \t\n\r";
    for (int i = 0; i < 4; i++) {
        step_range(m, from, (unsigned)SPACES[i], (unsigned)SPACES[i], to);
    }
}

/*
 * What all characters of the kind do from config, targets replaced by their stand-ins: those that
 * no token can tell apart count as one. A target that exits leaves what is known of the stack, so
 * it counts as refused: the slice must hold without knowing what is below.
 */
static outcome step_kind(ech_machine *const m, const ech_slice_kind kind, const uint32_t config,
                         targets *const to)
{
    const targets from = { .configs = { config }, .n = 1 };
    if (kind == ECH_SLICE_PLAIN)
        step_plain(m, &from, to);
    else
        step_space(m, &from, to);
    uint32_t n = 0;
    for (uint32_t i = 0; i < to->n && m->rc == ECH_OK; i++) {
        const uint32_t rough = ech_machine_rough(m, to->configs[i], 0);
        uint32_t k = 0;
        while (k < n && to->configs[k] != rough)
            k++;
        if (k == n) to->configs[n++] = rough;
    }
    to->n = n;
    bool only = false;
    for (uint32_t i = 0; i < n; i++)
        to->died |= ech_machine_exits(m, to->configs[i], &only);
    if (n == 0) return OUT_DIES;
    if (to->died || to->overflow) return OUT_MIXED;
    return n == 1 ? OUT_SINGLE : OUT_MANY;
}

/*
 * Whether characters of the kind are taken for ever from any of the configs in t. A closure over at
 * most MAX_TARGETS configs; t grows while it is walked.
 */
static bool takes_all(ech_machine *const m, const ech_slice_kind kind, targets *const t)
{
    for (uint32_t i = 0; i < t->n; i++) {
        targets to = { .n = 0 };
        const outcome out = step_kind(m, kind, t->configs[i], &to);
        if (out == OUT_DIES || out == OUT_MIXED || m->rc != ECH_OK) return false;
        for (uint32_t k = 0; k < to.n; k++)
            add_target(t, to.configs[k]);
        if (t->overflow) return false;
    }
    return true;
}

/*
 * How many characters of the kind are taken from config, exactly: that many always, one more never;
 * ECH_SLICE_LEVELS for at least as many; 0 when there is no such number. Bounded by
 * ECH_SLICE_LEVELS steps. A config that steps to itself takes any number. 0 is always safe: it only
 * means that the whole trie is walked.
 */
static uint32_t slice_level(ech_machine *const m, const ech_slice_kind kind, uint32_t config)
{
    for (uint32_t level = 0; level < ECH_SLICE_LEVELS; level++) {
        targets to = { .n = 0 };
        const outcome out = step_kind(m, kind, config, &to);
        if (m->rc != ECH_OK || out == OUT_MIXED) return 0;
        if (out == OUT_DIES) return level;
        if (out == OUT_MANY) return takes_all(m, kind, &to) ? ECH_SLICE_LEVELS : 0;
        if (to.configs[0] == config) return ECH_SLICE_LEVELS;
        config = to.configs[0];
    }
    return ECH_SLICE_LEVELS;
}

/* ---- walking ---- */

/*
 * Collects the ids that nodes [from, to) of the trie spell, in s->ids from n on; returns how many
 * there are then. path[] holds the config before the first node's byte. Nodes are in depth-first
 * order, so path[depth - 1] is always the config of the parent, and a subtree that dies is skipped
 * by i = node.end. This is the inner loop of a mask: one table look-up a node once the machine's
 * rows are there.
 */
static uint32_t walk(ech_masks *const s, const ech_trie *const trie, const uint32_t from,
                     const uint32_t to, uint32_t n)
{
    ech_machine *const m = s->machine;
    const uint8_t *const class_of = m->program->class_of;
    const uint32_t *const same = s->vocab->same;
    uint32_t *const path = s->path, *const ids = s->ids;
    for (uint32_t i = from; i < to;) {
        const ech_trie_node node = trie->nodes[i];
        const uint32_t next = ech_machine_step(m, path[node.depth - 1], class_of[node.byte]);
        if (next == ECH_CONFIG_DEAD) {
            i = node.end;
            continue;
        }
        path[node.depth] = next;
        for (uint32_t t = node.token; t != 0; t = same[t - 1])
            ids[n++] = t - 1;
        i++;
    }
    return n;
}

/*
 * The same for a whole trie and a relative config: lists the nodes at which it exits. A node whose
 * only reading exits is left there: everything below it depends on the caller's stack and is walked
 * later from s->exits. Where one reading exits and another stays, the two would have to be walked
 * at once, which a list of exits can't express: is_mixed.
 */
static uint32_t walk_relative(ech_masks *const s, ech_local_mask *const local,
                              const uint32_t config)
{
    ech_machine *const m = s->machine;
    const ech_trie *const trie = local->trie;
    uint32_t n = 0;
    s->path[0] = config;
    s->n_exits = 0;
    for (uint32_t i = 0; i < trie->n;) {
        const ech_trie_node node = trie->nodes[i];
        const uint32_t next =
            ech_machine_step(m, s->path[node.depth - 1], m->program->class_of[node.byte]);
        bool only = false;
        if (next == ECH_CONFIG_DEAD) {
            i = node.end;
            continue;
        }
        s->path[node.depth] = next;
        for (uint32_t t = node.token; t != 0; t = s->vocab->same[t - 1])
            s->ids[n++] = t - 1;
        i++;
        if (!ech_machine_exits(m, next, &only)) continue;
        local->is_mixed |= !only;
        if (i == node.end) continue; /* nothing goes on from there */
        if (!ECH_VEC_GROW(s->exits, s->cap_exits, s->n_exits, 1))
            m->rc = ECH_ENOMEM;
        else
            s->exits[s->n_exits++] = i - 1;
        if (only) i = node.end;
    }
    return n;
}

/*
 * Keeps the n ids of s->ids in the mask, as a list or as bits, whichever is smaller. An id costs 32
 * bits and the bit set n_words words, so the list is smaller up to n_words ids. Counted in
 * s->bytes, which the constraint holds against cache_bytes.
 */
static bool keep_ids(ech_masks *const s, ech_mask *const mask, const uint32_t n)
{
    const uint32_t n_words = s->vocab->n_words;
    mask->count += n;
    if (n <= n_words) {
        mask->ids = malloc(((size_t)n + 1) * sizeof *mask->ids);
        if (mask->ids == NULL) return false;
        memcpy(mask->ids, s->ids, n * sizeof *mask->ids);
        mask->n_ids = n;
        s->bytes += n * sizeof *mask->ids;
        return true;
    }
    mask->bits = calloc(n_words, sizeof *mask->bits);
    if (mask->bits == NULL) return false;
    for (uint32_t i = 0; i < n; i++)
        mask->bits[s->ids[i] >> 5] |= UINT32_C(1) << (s->ids[i] & 31);
    s->bytes += n_words * sizeof *mask->bits;
    return true;
}

/*
 * Puts the slice of a config into the mask; returns the trie of the tokens that are left. A config
 * that exits gets none: how many characters it takes depends on the caller. mask->slice is borrowed
 * from the vocabulary; the tokens of the kind that are longer than the level are in no way
 * accepted, and those of other kinds are in rest.
 */
static const ech_trie *take_slice(ech_masks *const s, const uint32_t config, ech_mask *const mask)
{
    bool only = false;
    if (ech_machine_exits(s->machine, config, &only)) return &s->vocab->all;
    for (int kind = 0; kind < ECH_SLICE_COUNT; kind++) {
        const ech_slices *const slices = &s->vocab->slices[kind];
        const uint32_t level = slice_level(s->machine, (ech_slice_kind)kind, config);
        if (level == 0 || s->machine->rc != ECH_OK) continue;
        mask->slice = slices->masks + (size_t)(level - 1) * s->vocab->n_words;
        mask->count = slices->counts[level - 1];
        return &slices->rest;
    }
    return &s->vocab->all;
}

/* The index plus one of the local mask of a relative config; 0 and rc when it can't be made. */
static uint32_t local_of(ech_masks *const s, const uint32_t config)
{
    ech_machine *const m = s->machine;
    if (m->configs[config].local != 0) return m->configs[config].local;
    ech_local_mask local = { 0 };
    local.trie = take_slice(s, config, &local.mask);
    const uint32_t n = m->rc == ECH_OK ? walk_relative(s, &local, config) : 0;
    if (m->rc == ECH_OK && !ECH_VEC_GROW(s->locals, s->cap_locals, s->n_locals, 1)) {
        m->rc = ECH_ENOMEM;
    }
    if (m->rc != ECH_OK) return 0;
    if (!local.is_mixed) {
        local.exits = malloc(((size_t)s->n_exits + 1) * sizeof *local.exits);
        if (local.exits == NULL || !keep_ids(s, &local.mask, n)) {
            free(local.exits);
            m->rc = ECH_ENOMEM;
            return 0;
        }
        local.n_exits = s->n_exits;
        if (s->n_exits > 0) memcpy(local.exits, s->exits, s->n_exits * sizeof *local.exits);
    }
    s->bytes += sizeof local + local.n_exits * sizeof *local.exits;
    s->locals[s->n_locals++] = local;
    m->configs[config].local = s->n_locals;
    return s->n_locals;
}

/*
 * The mask of a config by its local mask and the walks from the latter's exits; false when that is
 * no way, or when rc is set. This is what makes many masks cheap: all places where a string is
 * being written share one local mask, and only tokens that run past the string's end are walked for
 * each of them.
 */
static bool compute_by_local(ech_masks *const s, const uint32_t config, ech_mask *const mask)
{
    ech_machine *const m = s->machine;
    uint32_t base = 0;
    const uint32_t relative = ech_machine_relative(m, config, &base);
    if (relative == ECH_CONFIG_DEAD) return false;
    const uint32_t idx = local_of(s, relative);
    if (m->rc != ECH_OK || s->locals[idx - 1].is_mixed) return false;
    const ech_local_mask *const local = &s->locals[idx - 1];
    const uint32_t outside = local->n_exits > 0 ? ech_machine_return(m, base) : ECH_CONFIG_DEAD;
    uint32_t n = 0;
    for (uint32_t i = 0; i < local->n_exits && m->rc == ECH_OK; i++) {
        const ech_trie_node *const node = &local->trie->nodes[local->exits[i]];
        s->path[node->depth] = outside;
        n = walk(s, local->trie, local->exits[i] + 1, node->end, n);
    }
    if (m->rc != ECH_OK) return false;
    mask->local = idx;
    mask->count = local->mask.count;
    if (!keep_ids(s, mask, n)) m->rc = ECH_ENOMEM;
    return m->rc == ECH_OK;
}

/* The general way: the config's whole stack, and a slice where the config allows one. */
static ech_status compute(ech_masks *const s, const uint32_t config, ech_mask *const mask)
{
    ech_machine *const m = s->machine;
    if (compute_by_local(s, config, mask) || m->rc != ECH_OK) return m->rc;
    const ech_trie *const trie = take_slice(s, config, mask);
    if (m->rc != ECH_OK) return m->rc;
    s->path[0] = config;
    const uint32_t n = walk(s, trie, 0, trie->n, 0);
    if (m->rc != ECH_OK) return m->rc;
    return keep_ids(s, mask, n) ? ECH_OK : ECH_ENOMEM;
}

/*
 * Long tokens are few (some hundred), so neither slices nor local masks are worth their bytes here.
 */
static ech_status compute_long(ech_masks *const s, const uint32_t config, ech_mask *const mask)
{
    s->path[0] = config;
    const uint32_t n = walk(s, &s->vocab->longs, 0, s->vocab->longs.n, 0);
    if (s->machine->rc != ECH_OK) return s->machine->rc;
    return keep_ids(s, mask, n) ? ECH_OK : ECH_ENOMEM;
}

/*
 * The index plus one of the mask of a config within a reach; 0 and rc when it can't be made. The
 * mask is kept at the stand-in, so configs that differ only in what no token can reach share it.
 * list may move when it grows: indices are kept, pointers are made last.
 */
static uint32_t mask_of(ech_masks *const s, const uint32_t config, const int reach)
{
    ech_machine *const m = s->machine;
    const uint32_t rough = ech_machine_rough(m, config, reach);
    if (m->rc != ECH_OK) return 0;
    if (m->configs[rough].mask[reach] != 0) return m->configs[rough].mask[reach];
    s->misses += reach == 0;
    ech_mask mask = { 0 };
    if (!ECH_VEC_GROW(s->list, s->cap, s->n, 1))
        m->rc = ECH_ENOMEM;
    else
        m->rc = reach == 0 ? compute(s, rough, &mask) : compute_long(s, rough, &mask);
    if (m->rc != ECH_OK) {
        free_mask(&mask);
        return 0;
    }
    s->list[s->n++] = mask;
    s->bytes += sizeof mask;
    m->configs[rough].mask[reach] = s->n;
    return s->n;
}

/*
 * near is counted from 1, so the pointer is taken after both calls: mask_of for the long tokens may
 * move the list.
 */
bool ech_masks_get(ech_masks *const s, const uint32_t config,
                   const ech_mask *ret_masks[ECH_CX_REACHES])
{
    const uint64_t misses = s->misses;
    const uint32_t near = mask_of(s, config, 0);
    uint32_t far = 0;
    if (near != 0 && s->vocab->longs.n > 0) far = mask_of(s, config, 1);
    if (s->machine->rc != ECH_OK) return false;
    s->hits += s->misses == misses;
    ret_masks[0] = &s->list[near - 1];
    ret_masks[1] = far != 0 ? &s->list[far - 1] : NULL;
    return true;
}

/* ---- output ---- */

/* Adds what a mask has by itself; the words hold its slice, or nothing. */
static void add_own(const ech_mask *const mask, const uint32_t n_words, uint32_t *const words)
{
    for (uint32_t i = 0; i < mask->n_ids; i++) {
        words[mask->ids[i] >> 5] |= UINT32_C(1) << (mask->ids[i] & 31);
    }
    for (uint32_t i = 0; mask->bits != NULL && i < n_words; i++)
        words[i] |= mask->bits[i];
}

/*
 * The order matters for speed only: the slice is a plain copy of n_words words, which is most of
 * the mask inside strings; the rest sets single bits in it. The eos bits are the caller's.
 */
void ech_masks_write(const ech_masks *const s, const ech_mask *const masks[ECH_CX_REACHES],
                     uint32_t *const words)
{
    const uint32_t n_words = s->vocab->n_words;
    const ech_mask *const near = masks[0];
    const ech_mask *const local = near->local != 0 ? &s->locals[near->local - 1].mask : NULL;
    const uint32_t *const slice = local != NULL ? local->slice : near->slice;
    if (slice != NULL)
        memcpy(words, slice, n_words * sizeof *words);
    else
        memset(words, 0, n_words * sizeof *words);
    if (local != NULL) add_own(local, n_words, words);
    add_own(near, n_words, words);
    if (masks[1] != NULL) add_own(masks[1], n_words, words);
}

uint32_t ech_masks_count(const ech_mask *const masks[ECH_CX_REACHES])
{
    return masks[0]->count + (masks[1] != NULL ? masks[1]->count : 0);
}

static int32_t first_bit(const uint32_t *const words, const uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (words[i] != 0) return (int32_t)(i * 32 + (uint32_t)__builtin_ctz(words[i]));
    }
    return -1;
}

/*
 * The one id of masks whose count is 1. With a local mask it may be on either side; an own list
 * that is empty says that it is the local one's.
 */
static int32_t only_id(const ech_masks *const s, const ech_mask *mask)
{
    if (mask->n_ids == 0 && mask->local != 0) mask = &s->locals[mask->local - 1].mask;
    if (mask->n_ids == 1) return (int32_t)mask->ids[0];
    return first_bit(mask->slice != NULL ? mask->slice : mask->bits, s->vocab->n_words);
}

int32_t ech_masks_only(const ech_masks *const s, const ech_mask *const masks[ECH_CX_REACHES])
{
    if (ech_masks_count(masks) != 1) return -1;
    return only_id(s, masks[masks[0]->count == 1 ? 0 : 1]);
}
