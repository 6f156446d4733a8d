/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batches of lines; see tokenize_lines.h. The main thread reads and writes; a piece of work is one
 * line from its JSON to its answer, since parsing and printing cost as much as the tokenizer does.
 *
 * Invariant: answers come in the order of the lines, and none after the first line that failed.
 * Ownership: lines point into the buffer of what was read, which isn't moved before they are
 * done; each has an output buffer that the next batch uses again.
 */
#include "src/cli/tokenize_lines.h"

#include <errno.h>
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/error.h"
#include "src/base/os/parallel.h"
#include "src/cli/options.h"

/* Bytes that are read before their lines are done: enough for every core, not much memory. */
#define BATCH_BYTES ((size_t)4 << 20)
#define READ_BYTES  ((size_t)256 << 10)

typedef struct job_line {
    const char *text; /* in the buffer of what was read */
    size_t len;
    size_t number; /* in the input, from 1 */
    ech_buf out;
    ech_status rc;
    ech_error err;
} job_line;

typedef struct batch {
    const ech_line_job *job;
    ech_buf in;      /* what was read and isn't done */
    job_line *lines; /* [n] */
    size_t n, cap;   /* cap lines have an out that may be used again */
    size_t n_read;   /* lines of the input so far */
    bool at_end;
} batch;

/* ---- one line ------------------------------------------------------------------------------- */

ech_status ech_line_put_ids(const ech_ids *const ids, ech_buf *const out)
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

static ech_status encode_line(const ech_line_job *const job, const json_t *const line,
                              ech_ids *const ids, ech_buf *const out, ech_error *const err)
{
    const json_t *const text = text_of(line);
    if (text == NULL) {
        return ech_fail(err, ECH_EFORMAT, "neither a JSON string nor an object with \"text\"");
    }
    ids->n = 0;
    ECH_TRY(ech_tokenizer_encode(job->tok, json_string_value(text), json_string_length(text),
                                 job->flags, ids, err));
    ECH_TRY(ech_buf_puts(out, "{\"ids\": "));
    ECH_TRY(ech_line_put_ids(ids, out));
    return ech_buf_puts(out, "}\n");
}

/*
 * The ids of a line: a JSON list, or an object with "ids". Whether the tokenizer has an id is
 * for the decoder to say.
 */
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
    return ech_fail(err, ECH_EFORMAT, "neither a JSON list of ids nor an object with \"ids\"");
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

static ech_status decode_line(const ech_line_job *const job, const json_t *const line,
                              ech_ids *const ids, ech_buf *const out, ech_error *const err)
{
    char *text = NULL;
    size_t len = 0;
    ECH_TRY(read_ids(line, ids, err));
    ECH_TRY(ech_tokenizer_decode(job->tok, ids->data, ids->n, job->flags, &text, &len, err));
    const ech_status rc = put_json_text(text, len, out);
    free(text);
    return rc;
}

static ech_status do_value(const ech_line_job *const job, const json_t *const value,
                           job_line *const l)
{
    ech_ids ids = { 0 };
    const ech_status rc = job->is_decode ? decode_line(job, value, &ids, &l->out, &l->err)
                                         : encode_line(job, value, &ids, &l->out, &l->err);
    ech_ids_fini(&ids);
    return rc;
}

/* On any thread; touches nothing but its own line. A zero byte in a string is text. */
static void do_line(void *const ctx, const size_t i)
{
    const batch *const b = ctx;
    job_line *const l = &b->lines[i];
    json_error_t why;
    json_t *const value = json_loadb(l->text, l->len, JSON_DECODE_ANY | JSON_ALLOW_NUL, &why);
    l->rc = value == NULL ? ech_fail(&l->err, ECH_EFORMAT, "not JSON: %s", why.text)
                          : do_value(b->job, value, l);
    json_decref(value);
}

/* ---- batches -------------------------------------------------------------------------------- */

/*
 * Empty lines have no answer but count, so that numbers in errors are those of an editor. What
 * is past n keeps its buffer.
 */
static ech_status add_line(batch *const b, const char *const text, const size_t len)
{
    b->n_read++;
    if (strspn(text, " \t\r\n") >= len) return ECH_OK;
    if (b->n == b->cap) {
        const size_t cap = b->cap == 0 ? 64 : 2 * b->cap;
        job_line *const more = realloc(b->lines, cap * sizeof *more);
        if (more == NULL) return ECH_ENOMEM;
        memset(more + b->cap, 0, (cap - b->cap) * sizeof *more);
        b->lines = more;
        b->cap = cap;
    }
    job_line *const l = &b->lines[b->n++];
    ech_buf_clear(&l->out);
    l->text = text;
    l->len = len;
    l->number = b->n_read;
    return ECH_OK;
}

/*
 * Finds the whole lines of what was read, at the end also the last one; says how far they go. A
 * line that isn't whole waits for the next reading.
 */
static ech_status find_lines(batch *const b, size_t *const ret_used)
{
    size_t at = 0;
    b->n = 0;
    while (at < b->in.len) {
        const char *const from = b->in.data + at;
        const char *const end = memchr(from, '\n', b->in.len - at);
        if (end == NULL && !b->at_end) break;
        const size_t len = end != NULL ? (size_t)(end - from) : b->in.len - at;
        ECH_TRY(add_line(b, from, len));
        at += len + (end != NULL);
    }
    *ret_used = at;
    return ECH_OK;
}

/*
 * Waits for something to read, then takes what is there, up to a batch. It never waits for a
 * batch to fill: a process that asks line by line gets each answer at once. The byte behind the
 * end is 0 for strspn().
 */
static ech_status read_some(batch *const b)
{
    struct pollfd more = { .fd = STDIN_FILENO, .events = POLLIN };
    do {
        ECH_TRY(ech_buf_reserve(&b->in, READ_BYTES));
        const ssize_t n = read(STDIN_FILENO, b->in.data + b->in.len, READ_BYTES);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return ECH_EIO;
        b->at_end = n == 0;
        b->in.len += (size_t)n;
        b->in.data[b->in.len] = '\0';
    } while (!b->at_end && b->in.len < BATCH_BYTES && poll(&more, 1, 0) == 1);
    return ECH_OK;
}

/* The answers in order, up to the first line that has none. */
static int write_lines(const batch *const b)
{
    for (size_t i = 0; i < b->n; i++) {
        const job_line *const l = &b->lines[i];
        if (l->rc != ECH_OK) {
            (void)fflush(stdout);
            (void)fprintf(stderr, "echelon: line %zu of the input: %s\n", l->number,
                          l->rc == ECH_ENOMEM ? "out of memory" : l->err.text);
            return ECH_EXIT_FAILED;
        }
        if (fwrite(l->out.data, 1, l->out.len, stdout) != l->out.len) return ECH_EXIT_FAILED;
    }
    return fflush(stdout) == 0 ? ECH_EXIT_OK : ECH_EXIT_FAILED;
}

/* What is left moves to the front after the lines were written, not before. */
static ech_status do_batch(batch *const b, int *const exit_code)
{
    size_t used = 0;
    ECH_TRY(read_some(b));
    ECH_TRY(find_lines(b, &used));
    ech_os_parallel(b->job->n_threads, b->n, do_line, b);
    *exit_code = write_lines(b);
    if (used == 0) return ECH_OK;
    memmove(b->in.data, b->in.data + used, b->in.len - used);
    b->in.len -= used;
    return ECH_OK;
}

/* Returns an exit code: 1 for a line or an input that fails. */
int ech_line_job_run(const ech_line_job *const job)
{
    batch b = { .job = job };
    int exit_code = ECH_EXIT_OK;
    ech_status rc = ECH_OK;
    while (rc == ECH_OK && exit_code == ECH_EXIT_OK && !b.at_end) {
        rc = do_batch(&b, &exit_code);
    }
    if (rc != ECH_OK) {
        (void)fprintf(stderr, "echelon: reading lines: %s\n", ech_status_str(rc));
        exit_code = ECH_EXIT_FAILED;
    }
    for (size_t i = 0; i < b.cap; i++) {
        ech_buf_fini(&b.lines[i].out);
    }
    free(b.lines);
    ech_buf_fini(&b.in);
    return exit_code;
}
