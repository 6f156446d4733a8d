/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compiling and matching with PCRE2. The just-in-time code is used where the system allows it; it
 * has a stack of its own, and when a match outgrows that, or there is no JIT, the interpreter does
 * the same work under the same limits.
 */
#include "src/text/tokenizer_regex.h"

#include <stdlib.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "src/base/error.h"

#define MAX_PATTERN_BYTES  65536
#define MAX_COMPILED_BYTES (8U << 20)
/* A match of one piece looks at each byte a few times; \s*[\r\n]+ on a run of spaces is the worst
 * that public patterns do: once forward and once back. */
#define MATCH_LIMIT_MIN      1000000U
#define MATCH_LIMIT_PER_BYTE 16U
#define HEAP_LIMIT_KIB       65536U
#define JIT_STACK_START      (64U << 10)
#define JIT_STACK_MAX        (8U << 20)

struct ech_regex {
    pcre2_code *code;
    bool has_jit;
};

struct ech_regex_scratch {
    pcre2_match_data *match;
    pcre2_match_context *limits;
    pcre2_jit_stack *stack; /* NULL: no JIT on this system */
};

/*
 * Ruby's and Oniguruma's view of a text: only \n ends a line, ^ and $ always see lines, \d and \w
 * know Unicode. \C would match half a character and is switched off.
 */
/* Compiles the translated pattern. */
static ech_status compile(ech_regex *const re, const ech_buf *const pattern, ech_error *const err)
{
    pcre2_compile_context *const ctx = pcre2_compile_context_create(NULL);
    if (ctx == NULL) return ech_fail(err, ECH_ENOMEM, "compiling a pattern: out of memory");
    (void)pcre2_set_newline(ctx, PCRE2_NEWLINE_LF);
    (void)pcre2_set_parens_nest_limit(ctx, 500);

    int code = 0;
    PCRE2_SIZE at = 0;
    const uint32_t options =
        PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C | PCRE2_NO_AUTO_CAPTURE;
    re->code = pcre2_compile((PCRE2_SPTR)pattern->data, pattern->len, options, &code, &at, ctx);
    pcre2_compile_context_free(ctx);
    if (re->code == NULL) {
        char why[160] = "";
        (void)pcre2_get_error_message(code, (PCRE2_UCHAR *)why, sizeof why);
        return ech_fail(err, ECH_EFORMAT, "compiling a pattern: %s", why);
    }
    size_t size = 0;
    (void)pcre2_pattern_info(re->code, PCRE2_INFO_SIZE, &size);
    if (size > MAX_COMPILED_BYTES)
        return ech_fail(err, ECH_ELIMIT, "compiling a pattern: too large");
    re->has_jit = pcre2_jit_compile(re->code, PCRE2_JIT_COMPLETE) == 0;
    return ECH_OK;
}

/*
 * Patterns come with models, which are input: their length, their compiled size, the work of a
 * match and its memory are bounded, each with an error of its own.
 */
ech_status ech_regex_create(ech_regex **const ret_re, const ech_str pattern, ech_error *const err)
{
    if (pattern.len > MAX_PATTERN_BYTES) {
        return ech_fail(err, ECH_ELIMIT, "compiling a pattern: %zu bytes, the limit is %d",
                        pattern.len, MAX_PATTERN_BYTES);
    }
    ech_regex *re = calloc(1, sizeof *re);
    if (re == NULL) return ech_fail(err, ECH_ENOMEM, "compiling a pattern: out of memory");
    ech_buf translated = { 0 };
    ech_status rc = ech_regex_translate(pattern, &translated, err);
    if (rc == ECH_OK) rc = compile(re, &translated, err);
    ech_buf_fini(&translated);
    if (rc != ECH_OK) {
        ech_regex_destroy(&re);
        return rc;
    }
    *ret_re = re;
    return ECH_OK;
}

void ech_regex_destroy(ech_regex **const re)
{
    if (*re == NULL) return;
    pcre2_code_free((*re)->code);
    free(*re);
    *re = NULL;
}

/* What a match writes to, one for each thread: the compiled code itself is only read. */
ech_status ech_regex_scratch_create(ech_regex_scratch **const ret_scratch)
{
    ech_regex_scratch *s = calloc(1, sizeof *s);
    if (s == NULL) return ECH_ENOMEM;
    s->match = pcre2_match_data_create(1, NULL);
    s->limits = pcre2_match_context_create(NULL);
    s->stack = pcre2_jit_stack_create(JIT_STACK_START, JIT_STACK_MAX, NULL);
    if (s->match == NULL || s->limits == NULL) {
        ech_regex_scratch_destroy(&s);
        return ECH_ENOMEM;
    }
    (void)pcre2_set_heap_limit(s->limits, HEAP_LIMIT_KIB);
    if (s->stack != NULL) pcre2_jit_stack_assign(s->limits, NULL, s->stack);
    *ret_scratch = s;
    return ECH_OK;
}

void ech_regex_scratch_destroy(ech_regex_scratch **const scratch)
{
    ech_regex_scratch *const s = *scratch;
    if (s == NULL) return;
    pcre2_match_data_free(s->match);
    pcre2_match_context_free(s->limits);
    pcre2_jit_stack_free(s->stack);
    free(s);
    *scratch = NULL;
}

/*
 * The text has been checked once, for the whole encoding, so no match checks it again. The limit
 * grows with the text: a long run may cost a bounded number of looks at each byte, never their
 * square.
 */
int ech_regex_find(const ech_regex *const re, ech_regex_scratch *const s, const char *const text,
                   const size_t len, const size_t from, size_t *const ret_start,
                   size_t *const ret_end)
{
    const size_t limit = MATCH_LIMIT_MIN + (len - from) * MATCH_LIMIT_PER_BYTE;
    (void)pcre2_set_match_limit(s->limits, limit > UINT32_MAX ? UINT32_MAX : (uint32_t)limit);

    int rc = PCRE2_ERROR_JIT_STACKLIMIT;
    if (re->has_jit && s->stack != NULL) {
        rc = pcre2_jit_match(re->code, (PCRE2_SPTR)text, len, from, PCRE2_NO_UTF_CHECK, s->match,
                             s->limits);
    }
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
        rc = pcre2_match(re->code, (PCRE2_SPTR)text, len, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                         s->match, s->limits);
    }
    if (rc == PCRE2_ERROR_NOMATCH) return 0;
    if (rc == PCRE2_ERROR_NOMEMORY) return ECH_ENOMEM;
    if (rc < 0) return ECH_ELIMIT;
    const PCRE2_SIZE *const at = pcre2_get_ovector_pointer(s->match);
    *ret_start = at[0];
    *ret_end = at[1];
    return 1;
}
