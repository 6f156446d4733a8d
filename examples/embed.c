/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Generates text with libechelon. Build against the installed library with
 *
 *     cc embed.c $(pkg-config --cflags --libs echelon) -o embed
 *     ./embed [PROMPT [MODEL_DIR]]
 */
#include <stdio.h>
#include <string.h>

#include <echelon/engine.h>

/* Prints the text of one answer as it comes. */
static ech_status print_answer(ech_request *request, ech_error *err)
{
    ech_event ev;
    do {
        const ech_status rc = ech_request_next(request, -1, &ev, err);
        if (rc != ECH_OK) return rc;
        if (ev.kind == ECH_EVENT_TEXT) fwrite(ev.text, 1, ev.text_len, stdout);
    } while (ev.kind != ECH_EVENT_DONE);
    printf("\n%u tokens\n", ev.usage.completion_tokens);
    *err = ev.error;
    return ev.error.code;
}

int main(int argc, char **argv)
{
    ech_engine *engine = NULL;
    ech_request *request = NULL;
    ech_error err = { 0 };

    ech_engine_options options;
    ech_engine_options_default(&options);
    options.model_dir = argc > 2 ? argv[2] : NULL; /* NULL: the model that comes with Echelon */
    ech_status rc = ech_engine_open(&engine, &options, &err);

    if (rc == ECH_OK) {
        ech_prompt prompt = { 0 };
        prompt.text = argc > 1 ? argv[1] : "Once upon a time";
        prompt.text_len = strlen(prompt.text);
        ech_request_options ask;
        ech_request_options_default(&ask);
        ask.prompts = &prompt;
        ask.n_prompts = 1;
        ask.max_tokens = 60;
        ask.sampling.temperature = 0;
        rc = ech_engine_submit(engine, &ask, &request, &err);
    }
    if (rc == ECH_OK) rc = print_answer(request, &err);
    if (rc != ECH_OK) fprintf(stderr, "embed: %s\n", err.text);

    ech_request_close(&request);
    ech_engine_close(&engine);
    return ech_status_exit(rc);
}
