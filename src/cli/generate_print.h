/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `echelon generate` prints for one answer: collected from its events, then written as lines
 * or as one JSON object.
 */
#ifndef ECH_CLI_GENERATE_PRINT_H
#define ECH_CLI_GENERATE_PRINT_H

#include <stdio.h>

#include "echelon/engine.h"
#include "echelon/tokenizer.h"
#include "src/base/buf.h"

typedef struct ech_printed {
    ech_buf text;
    ech_buf reasoning;
    ech_buf calls;      // lines "NAME ARGUMENTS"
    ech_buf calls_json; // JSON objects, joined by ", "
    ech_buf args;       // of the call that is being written
    ech_buf ids;        // "264, 8453"
    ech_buf logprobs;   // JSON objects, joined by ", "
    uint64_t seed;
    ech_finish finish;
    ech_usage usage;
    ech_error error;
    uint32_t n_calls; // complete ones
    bool is_done;
} ech_printed;

void ech_printed_fini(ech_printed *p);
/* Takes any event of the answer. ENOMEM. */
ech_status ech_printed_take(ech_printed *p, const ech_event *ev, const ech_tokenizer *tokenizer);
/*
 * text: …, token_ids: […], finish_reason: …, and with log-probabilities `logprobs: […]`; before
 * them reasoning: … and tool_call: …, where there are any. Reasoning and text are left out where
 * they were streamed already.
 */
void ech_printed_write_lines(const ech_printed *p, FILE *out, bool text_is_out);
/* One object on one line. load_ns: from the start of the program until the model was ready. */
ech_status ech_printed_write_json(const ech_printed *p, FILE *out, bool has_logprobs,
                                  int64_t load_ns);

#endif
