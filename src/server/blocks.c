/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks; see blocks.h. Invariant: at most one block is open, and text goes to the open one. */
#include "src/server/blocks.h"

#include "src/base/error.h"

ech_blocks *ech_blocks_new(ech_exchange *const x, ech_generation *const g,
                           const ech_block_ops *const ops)
{
    ech_blocks *const b = ech_arena_alloc(&x->arena, sizeof *b);
    if (b != NULL) b->ops = ops;
    g->blocks = b;
    return b;
}

void ech_blocks_fini(ech_blocks *const b)
{
    if (b == NULL) return;
    ech_buf_fini(&b->text);
    ech_buf_fini(&b->done);
}

/*
 * A closed block joins `done`, the whole answer's list, and gives its number up. Nothing is open
 * between a reasoning that ended and the first letter of the content.
 */
ech_status ech_blocks_close(ech_exchange *const x, ech_generation *const g)
{
    ech_blocks *const b = g->blocks;
    if (b->kind == ECH_BLOCK_NONE) return ECH_OK;
    if (b->done.len > 0) ECH_TRY(ech_buf_push(&b->done, ','));
    ECH_TRY(b->ops->close(x, g, b));
    b->kind = ECH_BLOCK_NONE;
    b->index++;
    ech_buf_clear(&b->text);
    return ECH_OK;
}

static ech_status open_block(ech_exchange *const x, ech_generation *const g,
                             const ech_block_kind kind, const ech_call *const call)
{
    ech_blocks *const b = g->blocks;
    ECH_TRY(ech_blocks_close(x, g));
    b->kind = kind;
    b->call = call;
    return b->ops->open(x, g, b);
}

/*
 * A call begins with its name, so its block opens there. Text of another channel than the open
 * block's closes it and opens one: clients of both APIs expect blocks one after another.
 */
ech_status ech_blocks_delta(ech_exchange *const x, ech_generation *const g, const uint32_t choice,
                            const ech_event *const ev)
{
    ech_blocks *const b = g->blocks;
    if (ev->channel == ECH_CHANNEL_TOOL_NAME) {
        return open_block(x, g, ECH_BLOCK_CALL, &g->choices[choice].calls[ev->call_index]);
    }
    if (ev->channel == ECH_CHANNEL_TOOL_ARGS) {
        b->call = &g->choices[choice].calls[ev->call_index];
    } else {
        const ech_block_kind kind =
            ev->channel == ECH_CHANNEL_REASONING ? ECH_BLOCK_REASONING : ECH_BLOCK_TEXT;
        if (b->kind != kind) ECH_TRY(open_block(x, g, kind, NULL));
    }
    ECH_TRY(ech_buf_append(&b->text, ev->text, ev->text_len));
    return b->ops->delta(x, g, b, ev->text, ev->text_len);
}

ech_status ech_blocks_call_end(ech_exchange *const x, ech_generation *const g,
                               const uint32_t choice, ech_call *const call)
{
    (void)choice;
    g->blocks->call = call;
    return ech_blocks_close(x, g);
}

/* A string, or a list of parts that are all text, joined in order; NULL: a part is something else.
 * A new reference. */
json_t *ech_text_of(const json_t *const content)
{
    if (json_is_string(content)) return json_incref((json_t *)content);
    ech_buf b = { 0 };
    bool ok = json_is_array(content);
    for (size_t i = 0; i < json_array_size(content) && ok; i++) {
        const json_t *const text = json_object_get(json_array_get(content, i), "text");
        ok = json_is_string(text) &&
             ech_buf_append(&b, json_string_value(text), json_string_length(text)) == ECH_OK;
    }
    json_t *const joined = ok ? json_stringn(b.data != NULL ? b.data : "", b.len) : NULL;
    ech_buf_fini(&b);
    return joined;
}
