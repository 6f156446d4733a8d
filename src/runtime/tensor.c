/* SPDX-License-Identifier: Apache-2.0 */
/* Views and the argument builder: plain data, nothing is checked before submit. */
#include "echelon/worker.h"

#include <string.h>

static const uint8_t dtype_bytes[ECH_DTYPE_COUNT] = {
    [ECH_DTYPE_U8] = 1,  [ECH_DTYPE_I8] = 1,   [ECH_DTYPE_U16] = 2, [ECH_DTYPE_I16] = 2,
    [ECH_DTYPE_U32] = 4, [ECH_DTYPE_I32] = 4,  [ECH_DTYPE_U64] = 8, [ECH_DTYPE_I64] = 8,
    [ECH_DTYPE_F16] = 2, [ECH_DTYPE_BF16] = 2, [ECH_DTYPE_F32] = 4, [ECH_DTYPE_F64] = 8,
};

size_t ech_dtype_bytes(const ech_dtype dtype)
{
    return (unsigned)dtype < ECH_DTYPE_COUNT ? dtype_bytes[dtype] : 0;
}

ech_tensor ech_tensor_view(const ech_buffer buffer, const uint64_t offset, const ech_dtype dtype,
                           const uint32_t ndim, const uint64_t *const shape)
{
    ech_tensor t = { .buffer = buffer, .offset = offset, .dtype = (uint8_t)dtype };
    /* A wrong ndim is kept as it is, so that submit can report it. */
    t.ndim = ndim > UINT8_MAX ? UINT8_MAX : (uint8_t)ndim;
    uint64_t stride = 1;
    for (uint32_t i = ndim <= ECH_MAX_DIMS ? ndim : 0; i-- > 0;) {
        t.shape[i] = shape[i];
        t.strides[i] = stride;
        stride *= shape[i];
    }
    return t;
}

ech_tensor ech_tensor_unplaced(const ech_dtype dtype, const uint32_t ndim,
                               const uint64_t *const shape)
{
    return ech_tensor_view((ech_buffer){ .id = 0 }, 0, dtype, ndim, shape);
}

ech_tensor ech_tensor_slice(const ech_tensor *const t, const uint32_t dim, const uint64_t start,
                            const uint64_t extent)
{
    ech_tensor s = *t;
    if (dim >= t->ndim || dim >= ECH_MAX_DIMS || start > t->shape[dim] ||
        extent > t->shape[dim] - start) {
        s.shape[0] = 0; /* reported by submit */
        return s;
    }
    s.shape[dim] = extent;
    s.offset += start * t->strides[dim] * ech_dtype_bytes((ech_dtype)t->dtype);
    return s;
}

void ech_args_clear(ech_args *const args)
{
    args->n_tensors = args->n_scalars = args->n_gates = args->misordered = 0;
}

void ech_args_add(ech_args *const args, const ech_tag tag, const ech_tensor *const t)
{
    if (args->n_scalars > 0) args->misordered = 1;
    if (args->n_tensors < ECH_MAX_TENSORS) {
        args->tensors[args->n_tensors] = *t;
        args->tensors[args->n_tensors].tag = (uint8_t)tag;
    }
    args->n_tensors++;
}

void ech_args_add_scalar(ech_args *const args, const uint64_t value)
{
    if (args->n_scalars < ECH_MAX_SCALARS) args->scalars[args->n_scalars] = value;
    args->n_scalars++;
}

void ech_args_add_gate(ech_args *const args, const ech_gate gate)
{
    if (args->n_gates < ECH_MAX_GATES) args->gates[args->n_gates] = gate;
    args->n_gates++;
}

const ech_tensor *ech_args_tensor(const ech_args *const args, const uint32_t i)
{
    return i < args->n_tensors && i < ECH_MAX_TENSORS ? &args->tensors[i] : NULL;
}
