/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the ids of one answer to its text: bytes of ids → stop strings → text that is final. What
 * might still become part of a stop string, or of a character, is held back here and nowhere else.
 */
#ifndef ECH_ENGINE_OUTPUT_H
#define ECH_ENGINE_OUTPUT_H

#include "echelon/tokenizer.h"
#include "src/base/buf.h"

typedef struct ech_output_options {
    const ech_tokenizer *tokenizer;
    const int32_t *prompt_ids; // [n_prompt]
    size_t n_prompt;
    bool skip_special;
    const char *const *stop; // [n_stop], outlive the output
    size_t n_stop;
    bool include_stop;
} ech_output_options;

typedef struct ech_output {
    ech_detok *detok; // NULL: not open
    ech_output_options options;
    ech_buf held;        // text that may begin a stop string
    ech_buf text;        // what the last call gave out
    const char *stopped; // the stop string that was found, NULL: none
} ech_output;

ech_status ech_output_init(ech_output *o, const ech_output_options *options, ech_error *err);
void ech_output_fini(ech_output *o);
/* Takes ids that are part of the text but not of the answer: no stop string is looked for. The
 * prompt, with `echo`; the output was opened without prompt ids then. */
ech_status ech_output_echo(ech_output *o, const int32_t *ids, size_t n, ech_str *ret_text,
                           ech_error *err);
/* Takes an id. *ret_text is what has become final, valid until the next call. After a stop string
 * was found (o->stopped) nothing may be pushed. */
ech_status ech_output_push(ech_output *o, int32_t id, ech_str *ret_text, ech_error *err);
/* The end of the answer: what was held back, unless a stop string was found. */
ech_status ech_output_finish(ech_output *o, ech_str *ret_text, ech_error *err);

#endif
