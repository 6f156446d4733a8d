/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `echelon tokenize`: text to ids and back, for one text or a stream of JSON lines.
 *
 * Two ways: one text, printed as one list, or lines of JSON on several cores (tokenize_lines.h).
 * The tokenizer alone is opened, no weights; so it starts in a moment. Exit codes: 2 where
 * arguments are wrong, 1 where the input or the tokenizer is. Main thread; lines on threads of
 * their own.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "echelon/engine.h"
#include "echelon/model.h"
#include "echelon/tokenizer.h"
#include "src/base/buf.h"
#include "src/base/error.h"
#include "src/base/os/parallel.h"
#include "src/cli/commands.h"
#include "src/cli/tokenize_lines.h"

static const char *model_dir;
static bool is_jsonl;
static bool is_decode;
static bool parses_special;
static bool adds_special;
static bool skips_special;
static int64_t threads;

static int failed(const ech_error *const err)
{
    (void)fprintf(stderr, "echelon: %s\n", err->text);
    return ech_status_exit(err->code);
}

/*
 * Both are off by default: the text and nothing else, unlike /tokenize of the server, which
 * counts what a prompt costs.
 */
static unsigned encode_flags(void)
{
    return (parses_special ? ECH_ENCODE_SPECIAL : 0U) | (adds_special ? ECH_ENCODE_ADD : 0U);
}

/*
 * Used for a text from the command line and from standard input; the length counts, zero bytes
 * are text too.
 */
static int do_text(const ech_tokenizer *const tok, const char *const text, const size_t len)
{
    ech_ids ids = { 0 };
    ech_buf out = { 0 };
    ech_error err = { 0 };
    ech_status rc = ech_tokenizer_encode(tok, text, len, encode_flags(), &ids, &err);
    if (rc == ECH_OK) rc = ech_line_put_ids(&ids, &out);
    int exit_code = ECH_EXIT_OK;
    if (rc != ECH_OK) {
        exit_code = failed(&err);
    } else if (printf("%s\n", out.data) < 0) {
        exit_code = ECH_EXIT_FAILED;
    }
    ech_ids_fini(&ids);
    ech_buf_fini(&out);
    return exit_code;
}

/*
 * Standard input as one text. Its last line end is a part of the text: a tool that cut it off
 * would count wrong.
 */
static int do_stdin(const ech_tokenizer *const tok)
{
    ech_buf text = { 0 };
    ech_error err = { 0 };
    if (ech_buf_read_fd(&text, 0, "standard input", ECH_ENCODE_MAX_BYTES, &err) != ECH_OK) {
        ech_buf_fini(&text);
        return failed(&err);
    }
    const int exit_code = do_text(tok, text.data, text.len);
    ech_buf_fini(&text);
    return exit_code;
}

/*
 * --jsonl and --decode read standard input, so a text beside them is a mistake and no second
 * input.
 */
static int run(const int argc, char **const argv)
{
    if (argc > 1) return ech_usage_error("tokenize takes one TEXT, put it in quotes");
    if (argc == 1 && (is_jsonl || is_decode))
        return ech_usage_error("TEXT and --jsonl or --decode don't go together");
    ech_tokenizer *tok = NULL;
    ech_error err = { 0 };
    char path[ECH_MODEL_PATH_MAX];
    if (ech_model_find(model_dir, path, &err) != ECH_OK ||
        ech_engine_open_tokenizer(&tok, path, &err) != ECH_OK)
        return failed(&err);
    int exit_code;
    if (is_jsonl || is_decode) {
        const ech_line_job job = {
            .tok = tok,
            .is_decode = is_decode,
            .flags = is_decode ? (skips_special ? ECH_DECODE_SKIP_SPECIAL : 0U) : encode_flags(),
            .n_threads = threads > 0 ? (uint32_t)threads : ech_os_usable_cores(),
        };
        exit_code = ech_line_job_run(&job);
    } else {
        exit_code = argc == 1 ? do_text(tok, argv[0], strlen(argv[0])) : do_stdin(tok);
    }
    ech_tokenizer_close(&tok);
    return exit_code;
}

static const ech_option OPTIONS[] = {
    { "model-dir", 'm', ECH_OPT_STRING, &model_dir, "DIR",
      "folder with tokenizer.json, or a GGUF file; default: the demo model", .min = 0 },
    { "special", 0, ECH_OPT_FLAG, &parses_special, NULL,
      "special tokens in the text become their ids", .min = 0 },
    { "add-special", 0, ECH_OPT_FLAG, &adds_special, NULL,
      "add what the post-processor adds (BOS, EOS, [CLS], …)", .min = 0 },
    { "jsonl", 0, ECH_OPT_FLAG, &is_jsonl, NULL,
      "each line of stdin is a JSON string or an object with \"text\"", .min = 0 },
    { "decode", 0, ECH_OPT_FLAG, &is_decode, NULL,
      "each line of stdin is a list of ids or an object with \"ids\"", .min = 0 },
    { "skip-special", 0, ECH_OPT_FLAG, &skips_special, NULL,
      "with --decode: special tokens give no text", .min = 0 },
    { "threads", 0, ECH_OPT_INT, &threads, "N", "cores for lines; default: all", .min = 1,
      .max = 256 },
};

const ech_command ech_cmd_tokenize = {
    "tokenize",
    "[TEXT]",
    "text to token ids and back; without TEXT standard input is one text",
    "echelon tokenize --special 'Once upon a time<|im_end|>'\n"
    "echo '\"Once upon a time\"' | echelon tokenize --jsonl | echelon tokenize --decode",
    OPTIONS,
    sizeof OPTIONS / sizeof OPTIONS[0],
    run,
};
