/* SPDX-License-Identifier: Apache-2.0 */
/* The table of architectures. */
#include "src/model/arch.h"

#include <string.h>

static const ech_arch *const TABLE[] = {
    &ech_arch_qwen3,
    &ech_arch_llama,
};

const ech_arch *ech_arch_find(const char *const name)
{
    for (size_t i = 0; i < sizeof TABLE / sizeof TABLE[0]; i++) {
        if (strcmp(TABLE[i]->name, name) == 0) return TABLE[i];
    }
    return NULL;
}

void ech_arch_list(ech_buf *const out)
{
    for (size_t i = 0; i < sizeof TABLE / sizeof TABLE[0]; i++) {
        (void)ech_buf_printf(out, "%s%s", i == 0 ? "" : ", ", TABLE[i]->name);
    }
}
