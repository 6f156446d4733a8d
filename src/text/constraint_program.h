/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs: expressions written out as instructions for the machine (constraint_machine.h), a
 * nondeterministic pushdown automaton over bytes.
 *
 *     RET            back to the caller; the end of the text when the stack is empty
 *     BYTE s p       one byte of set s, then p
 *     SPLIT i n      go on at each of lists[i .. i + n)
 *     CALL r p       rule r, then p; when p is RET nothing is pushed
 *     ENTER l        begin loop l with count 0
 *     NEXT l         one more round of loop l is done
 *     EXIT           the stack that is known ends here (ech_machine_relative)
 *
 * Immutable once built.
 */
#ifndef ECH_TEXT_CONSTRAINT_PROGRAM_H
#define ECH_TEXT_CONSTRAINT_PROGRAM_H

#include "src/text/constraint_expr.h"

typedef enum ech_op {
    ECH_OP_RET,
    ECH_OP_BYTE,
    ECH_OP_SPLIT,
    ECH_OP_CALL,
    ECH_OP_ENTER,
    ECH_OP_NEXT,
    ECH_OP_EXIT,
} ech_op;

#define ECH_PC_RET  0u
#define ECH_PC_DEAD 1u /* a SPLIT of nothing */
#define ECH_PC_EXIT 2u

/* The height of what can't be finished within the depth limit. */
#define ECH_HEIGHT_NEVER UINT16_MAX

typedef struct ech_instr {
    uint32_t op;
    uint32_t a, b;
} ech_instr;

typedef struct ech_loop {
    uint32_t min, max; /* max ECH_CX_INF: none */
    uint32_t body;     /* ends in NEXT */
    uint32_t exit;
    bool is_nullable; /* the body may match nothing; min is 0 then */
} ech_loop;

typedef struct ech_program {
    ech_instr *instrs;
    uint32_t n_instrs, cap_instrs;
    uint32_t *lists;
    uint32_t n_lists, cap_lists;
    ech_loop *loops;
    uint32_t n_loops, cap_loops;
    uint32_t *rule_entry; /* [n_rules] */
    uint8_t *rule_nest;   /* [n_rules] 1: a call counts towards the depth limit */
    uint8_t *rule_role;   /* [n_rules] ech_cx_role */
    uint32_t n_rules;
    uint16_t *height; /* [n_instrs] levels needed from here to RET; NULL: no rule counts */
    uint32_t *rough[ECH_CX_REACHES]; /* [n_instrs] the instruction that stands in for one where
                                        only so many bytes count; NULL: none does */
    uint32_t max_depth;
    uint32_t start;
    uint32_t n_classes; /* bytes of a class behave alike */
    uint8_t class_of[256];
    uint8_t byte_of[256]; /* [n_classes] one byte of each class */
    ech_byteset *sets;    /* [n_sets] as sets of classes */
    uint32_t n_sets;
} ech_program;

/*
 * Compiles root. Fails with EINVAL when root matches nothing (within max_depth), when a rule
 * begins with itself, ELIMIT beyond max_instrs, ENOMEM. *ret_rule as for ech_cx_analyse. On
 * success the program is the caller's to fini.
 */
ech_status ech_program_build(const ech_cx_graph *g, ech_cx root, uint32_t max_instrs,
                             uint32_t max_depth, ech_program *ret_program, uint32_t *ret_rule,
                             ech_error *err);
void ech_program_fini(ech_program *program);

#endif
