/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The `sample` program: what one sampler row says, what comes out of it, and the function over one
 * row.
 *
 * A row is a pure function of (logits, the sequence's ids, the row, its mask, mirostat's mu).
 * Nothing is kept between rows, so a step may be run twice, rows may be shared among cores in any
 * way, and a row's result does not depend on its neighbours. All arithmetic is C with a fixed
 * order and our own exp and log: the bits don't depend on the instruction set either.
 *
 * Order: mask, allowed and banned ids, bad words, logit bias, min tokens; repetition, frequency and
 * presence penalties, DRY; temperature; top-k, typical, top-p, min-p, XTC; draw. Mirostat replaces
 * what follows temperature. Log-probabilities are those of the raw logits.
 *
 * The structs lie in shared memory: no pointers, fixed widths, offsets into side tensors. The
 * engine writes rows, lists, masks and history; the chip writes ids, records and the other half of
 * the state pair. What the engine wrote is still checked here: a row that points outside its
 * tensors fails alone, with ECH_SAMPLE_BAD_ROW.
 */
#ifndef ECH_CHIP_SAMPLER_H
#define ECH_CHIP_SAMPLER_H

#include <stddef.h>

#include "echelon/status.h"

/*
 * The tensors of a sample task, in order.
 * The ids are INOUT, because a row may read the id that the step before it sampled (pending_slot);
 * a row never reads a slot that the same step writes.
 */
enum ech_sample_tensor {
    ECH_SAMPLE_T_LOGITS,  /* f32 [n_logits, vocab]                       INPUT */
    ECH_SAMPLE_T_ROWS,    /* u8  [n, sizeof(ech_sampler_row)]            INPUT */
    ECH_SAMPLE_T_HISTORY, /* i32 [n_history], see ech_sampler_row        INPUT */
    ECH_SAMPLE_T_LISTS,   /* i32 [n_lists], see ech_sampler_list         INPUT */
    ECH_SAMPLE_T_MASKS,   /* u32 [n_masks, ECH_MASK_WORDS(vocab)]        INPUT */
    ECH_SAMPLE_T_STATE,   /* f32 [n_state, 2]: mirostat's mu, both halves INOUT */
    ECH_SAMPLE_T_IDS,     /* i32 [slots]                                 INOUT */
    ECH_SAMPLE_T_OUT,     /* u8  [n, stride]: an ech_sample_out each      OUTPUT_EXISTING */
    ECH_SAMPLE_T_COUNT,
};

enum ech_sample_scalar {
    ECH_SAMPLE_S_N_ROWS,
    ECH_SAMPLE_S_OUT_STRIDE, /* bytes from one record to the next, see ECH_SAMPLE_OUT_BYTES */
    ECH_SAMPLE_S_COUNT,
};

/* Words of a mask row: bit (id & 31) of word (id >> 5) set: the id is allowed. */
#define ECH_MASK_WORDS(vocab) (((uint32_t)(vocab) + 31u) / 32u)

/* Bytes of an ech_sample_out that has room for n top entries: the stride of the out tensor. */
#define ECH_SAMPLE_OUT_BYTES(n) (32u + 8u * (uint32_t)(n))
/* Top log-probabilities a record holds unless the engine is told otherwise. */
#define ECH_SAMPLE_TOP_DEFAULT 20u

/* What a row does. */
enum ech_sample_mode {
    ECH_SAMPLE_DRAW,  /* choose an id, write it to the ids tensor */
    ECH_SAMPLE_SCORE, /* choose nothing: log-probabilities of target_id and the top, of the prompt
                       */
};

/* How a row ended, in its record. Failures are the row's own; the task succeeds. */
enum ech_sample_status {
    ECH_SAMPLE_OK,
    ECH_SAMPLE_NAN,     /* a NaN or +inf among the raw logits, or no finite one */
    ECH_SAMPLE_MASKED,  /* mask, lists and bans leave no id */
    ECH_SAMPLE_BAD_ROW, /* an offset, id or number of the row is out of range: the engine's fault */
};

/* A slice of the lists tensor, in elements. n = 0: no such list. */
typedef struct ech_sampler_list {
    uint32_t offset;
    uint32_t n;
} ech_sampler_list;

/*
 * One row. Off values are given at each field; `ech_sampler_row_init` sets them all, which is a
 * greedy row. W: engine  R: chip.
 */
typedef struct ech_sampler_row {
    uint64_t seed;      /* key of the generator; choice k of seed s has s + k */
    uint64_t pos;       /* position of the id being drawn: counter of the generator */
    uint32_t mode;      /* enum ech_sample_mode */
    uint32_t logit_row; /* row of the logits tensor */
    int32_t target_id;  /* ECH_SAMPLE_SCORE: the id whose log-probability is wanted */
    int32_t out_slot;   /* where the id goes in the ids tensor; -1: only into the record */

    /*
     * The sequence's ids: history[history .. + n_prompt) are the prompt's, the n_output after them
     * were sampled and are known to the engine; where pending_slot >= 0, ids[pending_slot], sampled
     * by the step before this one, follows them. May be left out (n_prompt = n_output = 0,
     * pending_slot = -1) where nothing needs it: no penalty, no DRY, no bad words.
     */
    uint32_t history;
    uint32_t n_prompt;
    uint32_t n_output;
    int32_t pending_slot;
    uint32_t n_done;     /* ids sampled so far, the pending one included, history given or not */
    uint32_t min_tokens; /* while n_done is below: the ids of `stop` are banned */

    int32_t mask_row;      /* row of the masks tensor; -1: none */
    uint32_t want_logprob; /* 1: the chosen id's log-probability goes into the record */
    uint32_t n_top;        /* top entries wanted, 0 .. room in the record; implies want_logprob */

    float temperature; /* 0: greedy */
    uint32_t top_k;    /* 0: off */
    float top_p;       /* 1: off; keeps the id that crosses it */
    float min_p;       /* 0: off */
    float typical_p;   /* 1: off */
    float repetition;  /* 1: off; > 0; prompt and output */
    float frequency;   /* 0: off; output */
    float presence;    /* 0: off; output */

    float dry_multiplier;        /* 0: off */
    float dry_base;              /* >= 1 */
    uint32_t dry_allowed_length; /* repeats up to, but not of, this length cost nothing */
    uint32_t dry_window;         /* looks at this many last ids of the history; 0: all */
    float xtc_probability;       /* 0: off */
    float xtc_threshold;         /* off above 0.5 */

    uint32_t mirostat;     /* 0: off, 1, 2 */
    float mirostat_tau;    /* target surprise, bits */
    float mirostat_eta;    /* learning rate */
    uint32_t state_slot;   /* row of the state tensor */
    uint32_t state_parity; /* reads state[slot][parity], writes state[slot][parity ^ 1]; with
                              n_done = 0 nothing is read, mu starts at 2 tau */

    ech_sampler_list bias;          /* pairs: id, bits of a finite f32 that is added */
    ech_sampler_list allowed;       /* ids; where given, only these */
    ech_sampler_list banned;        /* ids */
    ech_sampler_list stop;          /* ids that end the sequence: banned by min_tokens */
    ech_sampler_list bad_words;     /* words: a length, then that many ids. The last id is banned
                                       where the output ends with those before it */
    ech_sampler_list dry_breakers;  /* ids no repeat may contain */
    ech_sampler_list dry_sequences; /* the same of ids in a row: a length, then that many ids, … */
} ech_sampler_row;

_Static_assert(sizeof(ech_sampler_row) == 200, "layout of a sampler row");
_Static_assert(offsetof(ech_sampler_row, mode) == 16, "layout of a sampler row");
_Static_assert(offsetof(ech_sampler_row, history) == 32, "layout of a sampler row");
_Static_assert(offsetof(ech_sampler_row, temperature) == 68, "layout of a sampler row");
_Static_assert(offsetof(ech_sampler_row, mirostat) == 124, "layout of a sampler row");
_Static_assert(offsetof(ech_sampler_row, bias) == 144, "layout of a sampler row");

/* An id and the log of its probability under the raw logits. -inf where the logit is. */
typedef struct ech_top_logprob {
    int32_t id;
    float logprob;
} ech_top_logprob;

/* What came out of a row. W: chip  R: engine. */
typedef struct ech_sample_out {
    uint32_t status; /* enum ech_sample_status */
    int32_t id;      /* drawn, or the target; 0 after a failure (and so in the ids tensor: the step
                        that is already prepared stays valid) */
    float logprob;   /* of id, when wanted, else 0 */
    float mu;        /* mirostat's mu after this id, as in the state tensor; else 0 */
    uint32_t n_top;  /* entries that follow: descending, ties to the lower id; min(wanted, vocab) */
    uint32_t rank;   /* of id, when wanted: how many logits are at least its own; else 0 */
    uint32_t reserved[2];
    ech_top_logprob top[];
} ech_sample_out;

_Static_assert(sizeof(ech_sample_out) == 32, "layout of a sample record");
_Static_assert(sizeof(ech_top_logprob) == 8, "layout of a sample record");

/*
 * The tensors of a task, bound and measured. Pointers are valid while the task runs. Tensors that
 * no row uses may be empty (n = 0, NULL).
 */
typedef struct ech_sample_args {
    const float *logits;         // [n_logits, vocab]
    const ech_sampler_row *rows; // [n_rows]
    const int32_t *history;      // [n_history]
    const int32_t *lists;        // [n_lists]
    const uint32_t *masks;       // [n_masks, ECH_MASK_WORDS(vocab)]
    float *state;                // [n_state, 2]
    int32_t *ids;                // [n_ids]
    uint8_t *out;                // [n_rows, out_stride]
    uint32_t vocab;
    uint32_t n_rows;
    uint32_t n_logits;
    uint32_t n_masks;
    uint32_t n_state;
    uint32_t n_ids;
    uint32_t out_stride;  /* >= sizeof(ech_sample_out), a multiple of 8 */
    uint32_t max_history; /* ids of one row's history, the pending one included: bound of scratch */
    uint64_t n_history;
    uint64_t n_lists;
} ech_sample_args;

/* Every field at its off value: greedy, nothing wanted but the id. */
void ech_sampler_row_init(ech_sampler_row *row);

/* Bytes of the scratch of one core, a multiple of 64. vocab >= 1. */
size_t ech_sample_scratch_bytes(uint32_t vocab, uint32_t max_history);

/*
 * Row i of the task, on any core: reads what the row names, writes its record, its slot of the ids
 * and its half of the state, nothing else. No allocation, no failure but the record's status.
 * scratch: ech_sample_scratch_bytes(vocab, max_history), aligned to 64, one per core at a time;
 * whatever it holds.
 */
void ech_sample_row(const ech_sample_args *args, uint32_t i, void *scratch);

#endif
