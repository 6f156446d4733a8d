/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A chat template, and after a zero byte, if there is one, its arguments. Checks, beyond not
 * crashing, that a rendering's spans cover its text and that the text is UTF-8.
 */
#include <stdlib.h>
#include <string.h>

#include "echelon/template.h"
#include "src/base/error.h"
#include "src/base/utf8.h"
#include "tests/fuzz/fuzz.h"

static const char DEFAULT_ARGS[] =
    "{\"messages\":[{\"role\":\"user\",\"content\":\"a <|im_end|> "
    "b\"},{\"role\":\"assistant\",\"content\":null,"
    "\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":{\"x\":[1,2.5,true]}}}]}],"
    "\"tools\":[{\"a\":1}],"
    "\"s\":\"Gr\u00fc\u00dfe \",\"n\":3,\"bos_token\":\"<s>\",\"add_generation_prompt\":true}";

static void check(const ech_rendered *const r)
{
    size_t sum = 0;
    for (size_t i = 0; i < r->n_spans; i++) {
        ECH_ASSERT(r->spans[i].len > 0);
        sum += r->spans[i].len;
    }
    ECH_ASSERT(sum == r->len);
    ECH_ASSERT(ech_utf8_valid(r->text, r->len, NULL));
}

int LLVMFuzzerTestOneInput(const uint8_t *const data, const size_t size)
{
    const uint8_t *const zero = size == 0 ? NULL : memchr(data, 0, size);
    const size_t source_len = zero == NULL ? size : (size_t)(zero - data);
    const char *const args = zero == NULL ? DEFAULT_ARGS : (const char *)zero + 1;
    const size_t args_len = zero == NULL ? sizeof DEFAULT_ARGS - 1 : size - source_len - 1;
    ech_template *t = NULL;
    ech_rendered r = { 0 };
    ech_error err = { 0 };
    ech_template_options opts;
    ech_template_options_default(&opts);
    opts.max_steps = 100000;
    opts.max_memory = (size_t)8 << 20;
    opts.max_output = (size_t)1 << 20;
    opts.now = "2026-01-02T03:04:05";
    if (ech_template_compile((const char *)data, source_len, &t, &err) == ECH_OK &&
        ech_template_render(t, args, args_len, &opts, &r, &err) == ECH_OK) {
        check(&r);
    }
    ech_rendered_release(&r);
    ech_template_destroy(&t);
    return 0;
}
