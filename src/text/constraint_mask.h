/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Masks of configs: computed by walking the vocabulary's trie with the machine, kept in a compact
 * form, written out on demand. Not thread safe: the constraint's lock guards it.
 */
#ifndef ECH_TEXT_CONSTRAINT_MASK_H
#define ECH_TEXT_CONSTRAINT_MASK_H

#include "src/text/constraint_machine.h"
#include "src/text/constraint_vocab.h"

/* A slice's mask, or none, together with a list of ids or with bits. Without the eos ids. */
typedef struct ech_mask {
    const uint32_t *slice; /* borrowed from the vocabulary, NULL: none */
    uint32_t *ids;         /* [n_ids] */
    uint32_t *bits;        /* [n_words], instead of ids when there are many */
    uint32_t n_ids;
    uint32_t count; /* bits set in all, those of local counted */
    uint32_t local; /* index plus one of a local mask that is part of this one, 0: none */
} ech_mask;

/*
 * The part of a mask that needs no more than the top of the stack: tokens that stay above the
 * frame where a relative config is cut, or end exactly there. exits are the nodes of the trie at
 * which it is reached: from each of them the walk goes on with what is below.
 */
typedef struct ech_local_mask {
    ech_mask mask;
    const ech_trie *trie;
    uint32_t *exits;
    uint32_t n_exits;
    bool is_mixed; /* somewhere one reading exits and another stays: of no use */
} ech_local_mask;

typedef struct ech_masks {
    const ech_mask_vocab *vocab;
    ech_machine *machine;
    ech_mask *list;
    uint32_t n, cap;
    ech_local_mask *locals;
    uint32_t n_locals, cap_locals;
    size_t bytes;
    uint32_t *path;  /* [token_len + 1] configs along a walk */
    uint32_t *ids;   /* scratch: [n_ids of the vocabulary] */
    uint32_t *exits; /* scratch: growing */
    uint32_t n_exits, cap_exits;
    uint64_t hits, misses;
} ech_masks;

ech_status ech_masks_init(ech_masks *s, const ech_mask_vocab *vocab, ech_machine *machine);
void ech_masks_fini(ech_masks *s);
/* Forgets all masks; to be called when the machine was emptied. */
void ech_masks_clear(ech_masks *s);
/*
 * The masks of a config, of ordinary tokens and of long ones (NULL where the vocabulary has none).
 * False, and machine->rc, when they can't be computed. Valid until the next call.
 */
bool ech_masks_get(ech_masks *s, uint32_t config, const ech_mask *ret_masks[ECH_CX_REACHES]);
/* Writes the words of the vocabulary. */
void ech_masks_write(const ech_masks *s, const ech_mask *const masks[ECH_CX_REACHES],
                     uint32_t *words);
/* How many ids the masks have. */
uint32_t ech_masks_count(const ech_mask *const masks[ECH_CX_REACHES]);
/* The only id of masks that have one, else -1. */
int32_t ech_masks_only(const ech_masks *s, const ech_mask *const masks[ECH_CX_REACHES]);

#endif
