/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes of KV pages. Pure functions; the writing and reading of them is in forward_kv.c. */
#include "src/chip/kv.h"

#include "src/chip/image.h"

ech_pack_type ech_kv_panel_type(const ech_kv_type type)
{
    static const ech_pack_type types[ECH_KV_TYPES] = {
        [ECH_KV_F16] = ECH_PACK_F16,
        [ECH_KV_F32] = ECH_PACK_F32,
        [ECH_KV_BF16] = ECH_PACK_BF16,
        [ECH_KV_Q8] = ECH_PACK_S8,
    };
    return types[type];
}

size_t ech_kv_scale_bytes(const ech_kv_type type)
{
    return type == ECH_KV_Q8 ? ECH_KV_PAGE * sizeof(float) : 0;
}

size_t ech_kv_k_panel_bytes(const ech_kv_type type, const uint32_t head_dim)
{
    return ech_panel_bytes(ech_kv_panel_type(type), head_dim);
}

size_t ech_kv_v_panel_bytes(const ech_kv_type type)
{
    return ech_panel_bytes(ech_kv_panel_type(type), ECH_KV_PAGE);
}

size_t ech_kv_k_bytes(const ech_kv_type type, const uint32_t head_dim)
{
    return ech_kv_scale_bytes(type) +
           ECH_KV_PAGE / ECH_PANEL * ech_kv_k_panel_bytes(type, head_dim);
}

size_t ech_kv_v_bytes(const ech_kv_type type, const uint32_t head_dim)
{
    return ech_kv_scale_bytes(type) +
           (size_t)(head_dim + ECH_PANEL - 1) / ECH_PANEL * ech_kv_v_panel_bytes(type);
}

size_t ech_kv_page_bytes(const ech_kv_shape *const shape)
{
    if (shape->n_layers == 0 || shape->n_layers > ECH_KV_MAX_LAYERS || shape->n_kv_heads == 0 ||
        shape->n_kv_heads > ECH_KV_MAX_HEADS || shape->head_dim == 0 ||
        shape->head_dim > ECH_KV_MAX_HEAD_DIM || (uint32_t)shape->type >= ECH_KV_TYPES)
        return 0;
    return (size_t)shape->n_layers * shape->n_kv_heads *
           (ech_kv_k_bytes(shape->type, shape->head_dim) +
            ech_kv_v_bytes(shape->type, shape->head_dim));
}
