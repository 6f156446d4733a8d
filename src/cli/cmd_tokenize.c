/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `echelon tokenize`: text to ids and back, for one text or a stream of JSON lines. Each output
 * line is written as soon as its input line is read, so that a process may be kept and asked.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "echelon/engine.h"
#include "echelon/model.h"
#include "echelon/tokenizer.h"
#include "src/base/buf.h"
#include "src/base/error.h"
#include "src/cli/commands.h"

static const char *model_dir;
static bool is_jsonl;
static bool is_decode;
static bool parses_special;
static bool adds_special;
static bool skips_special;

static int failed(const ech_error *const err)
{
    (void)fprintf(stderr, "echelon: %s\n", err->text);
    return ech_status_exit(err->code);
}

static unsigned encode_flags(void)
{
    return (parses_special ? ECH_ENCODE_SPECIAL : 0U) | (adds_special ? ECH_ENCODE_ADD : 0U);
}

/* Appends "[1, 2]". */
static ech_status put_ids(const ech_ids *const ids, ech_buf *const out)
{
    char digits[16];
    ECH_TRY(ech_buf_push(out, '['));
    for (size_t i = 0; i < ids->n; i++) {
        size_t n = sizeof digits;
        uint32_t id = (uint32_t)ids->data[i];
        do {
            digits[--n] = (char)('0' + id % 10);
            id /= 10;
        } while (id > 0);
        if (i > 0) ECH_TRY(ech_buf_append(out, ", ", 2));
        ECH_TRY(ech_buf_append(out, digits + n, sizeof digits - n));
    }
    return ech_buf_push(out, ']');
}

/* The text of a line: a JSON string, or an object with "text". NULL: neither. */
static const json_t *text_of(const json_t *const line)
{
    const json_t *const text = json_is_object(line) ? json_object_get(line, "text") : line;
    return json_is_string(text) ? text : NULL;
}

static ech_status encode_line(const ech_tokenizer *const tok, const json_t *const line,
                              ech_ids *const ids, ech_buf *const out, ech_error *const err)
{
    const json_t *const text = text_of(line);
    if (text == NULL) {
        err->code = ECH_EFORMAT;
        (void)snprintf(err->text, sizeof err->text,
                       "neither a JSON string nor an object with \"text\"");
        return err->code;
    }
    ids->n = 0;
    ECH_TRY(ech_tokenizer_encode(tok, json_string_value(text), json_string_length(text),
                                 encode_flags(), ids, err));
    ECH_TRY(ech_buf_puts(out, "{\"ids\": "));
    ECH_TRY(put_ids(ids, out));
    return ech_buf_puts(out, "}\n");
}

/* The ids of a line: a JSON list, or an object with "ids". */
static ech_status read_ids(const json_t *const line, ech_ids *const ids, ech_error *const err)
{
    const json_t *const list = json_is_object(line) ? json_object_get(line, "ids") : line;
    bool good = json_is_array(list);
    ids->n = 0;
    for (size_t i = 0; good && i < json_array_size(list); i++) {
        const json_t *const v = json_array_get(list, i);
        const json_int_t id = json_integer_value(v);
        good = json_is_integer(v) && id >= 0 && id <= INT32_MAX;
        const int32_t narrow = (int32_t)id;
        if (good) ECH_TRY(ech_ids_append(ids, &narrow, 1));
    }
    if (good) return ECH_OK;
    err->code = ECH_EFORMAT;
    (void)snprintf(err->text, sizeof err->text,
                   "neither a JSON list of ids nor an object with \"ids\"");
    return err->code;
}

static ech_status put_json_text(const char *const text, const size_t len, ech_buf *const out)
{
    json_t *const s = json_stringn(text, len);
    char *const dump = s != NULL ? json_dumps(s, JSON_ENCODE_ANY) : NULL;
    ech_status rc = dump == NULL ? ECH_ENOMEM : ech_buf_printf(out, "{\"text\": %s}\n", dump);
    free(dump);
    json_decref(s);
    return rc;
}

static ech_status decode_line(const ech_tokenizer *const tok, const json_t *const line,
                              ech_ids *const ids, ech_buf *const out, ech_error *const err)
{
    char *text = NULL;
    size_t len = 0;
    ECH_TRY(read_ids(line, ids, err));
    ECH_TRY(ech_tokenizer_decode(tok, ids->data, ids->n,
                                 skips_special ? ECH_DECODE_SKIP_SPECIAL : 0, &text, &len, err));
    const ech_status rc = put_json_text(text, len, out);
    free(text);
    return rc;
}

/* One line in, one line out. */
static ech_status do_line(const ech_tokenizer *const tok, const char *const line, const size_t len,
                          ech_ids *const ids, ech_buf *const out, ech_error *const err)
{
    json_error_t why;
    json_t *const value = json_loadb(line, len, JSON_DECODE_ANY | JSON_ALLOW_NUL, &why);
    if (value == NULL) {
        err->code = ECH_EFORMAT;
        (void)snprintf(err->text, sizeof err->text, "not JSON: %s", why.text);
        return err->code;
    }
    ech_buf_clear(out);
    const ech_status rc =
        is_decode ? decode_line(tok, value, ids, out, err) : encode_line(tok, value, ids, out, err);
    json_decref(value);
    return rc;
}

static int do_lines(const ech_tokenizer *const tok)
{
    char *line = NULL;
    size_t cap = 0, number = 0;
    ech_ids ids = { 0 };
    ech_buf out = { 0 };
    ech_error err = { 0 };
    int exit_code = ECH_EXIT_OK;
    ssize_t len;
    while (exit_code == ECH_EXIT_OK && (len = getline(&line, &cap, stdin)) >= 0) {
        number++;
        if (strspn(line, " \t\r\n") == (size_t)len) continue;
        if (do_line(tok, line, (size_t)len, &ids, &out, &err) != ECH_OK) {
            (void)fprintf(stderr, "echelon: line %zu of the input: %s\n", number, err.text);
            exit_code = ECH_EXIT_FAILED;
        } else if (fwrite(out.data, 1, out.len, stdout) != out.len || fflush(stdout) != 0) {
            exit_code = ECH_EXIT_FAILED;
        }
    }
    free(line);
    ech_ids_fini(&ids);
    ech_buf_fini(&out);
    return exit_code;
}

static int do_text(const ech_tokenizer *const tok, const char *const text, const size_t len)
{
    ech_ids ids = { 0 };
    ech_buf out = { 0 };
    ech_error err = { 0 };
    ech_status rc = ech_tokenizer_encode(tok, text, len, encode_flags(), &ids, &err);
    if (rc == ECH_OK) rc = put_ids(&ids, &out);
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

/* Standard input as one text. */
static int do_stdin(const ech_tokenizer *const tok)
{
    ech_buf text = { 0 };
    ech_error err = { 0 };
    if (ech_buf_read_file(&text, "/dev/stdin", ECH_ENCODE_MAX_BYTES, &err) != ECH_OK) {
        ech_buf_fini(&text);
        return failed(&err);
    }
    const int exit_code = do_text(tok, text.data, text.len);
    ech_buf_fini(&text);
    return exit_code;
}

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
        exit_code = do_lines(tok);
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
