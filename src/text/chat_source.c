/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a model's folder keeps its chat template. Only reading: what the template is worth is found
 * out when it is compiled (chat.c).
 */
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "echelon/chat.h"
#include "src/base/buf.h"
#include "src/base/error.h"
#include "src/text/tokenizer_parts.h"

/* "chat_template": a text, or a list of {name, template}. */
static const json_t *pick(const json_t *const templates)
{
    if (json_is_string(templates)) return templates;
    for (size_t i = 0; i < json_array_size(templates); i++) {
        const json_t *const one = json_array_get(templates, i);
        const char *const name = json_string_value(json_object_get(one, "name"));
        if (name != NULL && strcmp(name, "default") == 0) return json_object_get(one, "template");
    }
    return NULL;
}

static ech_status read_from_config(ech_buf *const b, const char *const path, ech_error *const err)
{
    ech_buf text = { 0 };
    ech_status rc = ech_buf_read_regular(&text, path, ECH_TOKENIZER_MAX_BYTES, err);
    json_t *const config = rc == ECH_OK ? json_loadb(text.data, text.len, 0, NULL) : NULL;
    ech_buf_fini(&text);
    if (rc != ECH_OK && rc != ECH_ENOTFOUND) return rc;
    const json_t *const source = pick(json_object_get(config, "chat_template"));
    rc = ECH_OK;
    if (!json_is_string(source))
        rc = ech_fail(err, ECH_ENOTFOUND, "reading %s: it has no chat template", path);
    else if (ech_buf_append(b, json_string_value(source), json_string_length(source)) != ECH_OK)
        rc = ech_fail(err, ECH_ENOMEM, "reading %s: out of memory", path);
    json_decref(config);
    return rc;
}

ech_status ech_chat_read_source(char **const ret_source, size_t *const ret_len,
                                const char *const dir, ech_error *const err)
{
    struct stat st;
    char path[4096];
    ech_buf b = { 0 };
    /* A GGUF file that holds no template has no folder to look in either. */
    if (stat(dir, &st) == 0 && !S_ISDIR(st.st_mode))
        return ech_fail(err, ECH_ENOTFOUND, "reading %s: it holds no chat template", dir);
    (void)snprintf(path, sizeof path, "%s/chat_template.jinja", dir);
    ech_status rc = ech_buf_read_regular(&b, path, ECH_TEMPLATE_SOURCE_MAX, err);
    if (rc == ECH_ENOTFOUND) {
        (void)snprintf(path, sizeof path, "%s/tokenizer_config.json", dir);
        rc = read_from_config(&b, path, err);
    }
    if (rc == ECH_OK) rc = ech_buf_reserve(&b, 0); /* an empty template is a text too */
    if (rc != ECH_OK) {
        ech_buf_fini(&b);
        return rc;
    }
    *ret_source = b.data;
    *ret_len = b.len;
    return ECH_OK;
}
