/* SPDX-License-Identifier: Apache-2.0 */
/* Boxes: see box.h. */
#include "src/runtime/box.h"

#include "src/base/error.h"

/* What is left of a box when the outer dimensions are peeled off: bytes from `lo` of this row. */
typedef struct view {
    uint64_t lo;
    uint32_t ndim;
    const uint64_t *stride, *extent;
} view;

/* Bytes from the first to one past the last. */
static uint64_t span(const view *const v)
{
    uint64_t n = 1;
    for (uint32_t i = 0; i < v->ndim; i++)
        n += (v->extent[i] - 1) * v->stride[i];
    return n;
}

static view inner_of(const view *const v, const uint64_t row_bytes)
{
    return (view){ v->lo % row_bytes, v->ndim - 1, v->stride + 1, v->extent + 1 };
}

/* Whether any byte of v lies in [lo, hi), lo < hi. Exact. */
static bool touches(const view *const v, const uint64_t lo, const uint64_t hi)
{
    const uint64_t end = v->lo + span(v);
    if (hi <= v->lo || end <= lo) return false;
    if (v->ndim == 1) return true;
    const uint64_t stride = v->stride[0];
    const view row = { 0, v->ndim - 1, v->stride + 1, v->extent + 1 };
    const uint64_t row_span = span(&row);
    /* Rows whose start lies in the interval touch it; the one that starts before it may. */
    const uint64_t from = lo > v->lo ? (lo - v->lo + stride - 1) / stride : 0;
    if (from < v->extent[0] && v->lo + from * stride < hi) return true;
    if (from == 0) return false;
    const uint64_t start = v->lo + (from - 1) * stride;
    if (start + row_span <= lo) return false;
    const view before = { start, row.ndim, row.stride, row.extent };
    return touches(&before, lo, hi);
}

/* Whether a row of v stays inside its stride, so that rows can be compared one by one. */
static bool rows_fit(const view *const v, const uint64_t stride)
{
    const view in = inner_of(v, stride);
    return in.lo + span(&in) <= stride;
}

static bool overlap(const view *a, const view *b);

/*
 * Whether rows [first, last] of wide, each with n elements of `other` from byte `at` of the row on,
 * have a byte in common with it.
 */
static bool rows_touch(const view *const wide, const view *const other, const uint64_t stride,
                       const uint64_t first, const uint64_t last, const uint64_t at,
                       const uint64_t n)
{
    const uint64_t row = wide->lo / stride;
    uint64_t extent[ECH_MAX_DIMS + 1];
    if (n == 0 || last < row || first >= row + wide->extent[0]) return false;
    for (uint32_t i = 1; i < other->ndim; i++)
        extent[i] = other->extent[i];
    extent[0] = n;
    const view piece = { at, other->ndim, other->stride, extent };
    const view in = inner_of(wide, stride);
    return overlap(&in, &piece);
}

/*
 * other has a smaller stride and lies in several rows of wide, as when one of two boxes of a tensor
 * has merged dimensions that the other has not. Its elements are counted row by row: the rest of
 * the first row, whole rows, the beginning of the last.
 */
static bool overlap_rows(const view *const wide, const view *const other, const uint64_t stride)
{
    const uint64_t s = other->stride[0], n = other->extent[0];
    if (stride % s != 0 || !rows_fit(other, s))
        return touches(wide, other->lo, other->lo + span(other));
    const uint64_t per_row = stride / s, before = other->lo % stride / s, row = other->lo / stride;
    const uint64_t first = n < per_row - before ? n : per_row - before;
    const uint64_t whole = (n - first) / per_row, rest = (n - first) % per_row;
    return rows_touch(wide, other, stride, row, row, other->lo % stride, first) ||
           (whole > 0 &&
            rows_touch(wide, other, stride, row + 1, row + whole, other->lo % s, per_row)) ||
           rows_touch(wide, other, stride, row + whole + 1, row + whole + 1, other->lo % s, rest);
}

static bool overlap(const view *const a, const view *const b)
{
    if (a->ndim == 1) return touches(b, a->lo, a->lo + a->extent[0]);
    if (b->ndim == 1) return touches(a, b->lo, b->lo + b->extent[0]);
    const uint64_t stride = a->stride[0] > b->stride[0] ? a->stride[0] : b->stride[0];
    const view *const wide = a->stride[0] == stride ? a : b;
    const view *const other = wide == a ? b : a;
    const uint64_t other_end = other->lo + span(other);
    if (!rows_fit(wide, stride)) return touches(other, wide->lo, wide->lo + span(wide));
    const uint64_t row = wide->lo / stride;
    const view wide_in = inner_of(wide, stride);
    if (other->stride[0] == stride && rows_fit(other, stride)) {
        const uint64_t other_row = other->lo / stride;
        const view other_in = inner_of(other, stride);
        return row < other_row + other->extent[0] && other_row < row + wide->extent[0] &&
               overlap(&wide_in, &other_in);
    }
    if (other->lo / stride != (other_end - 1) / stride) return overlap_rows(wide, other, stride);
    const uint64_t at = other->lo / stride; /* all of it in one row of the other */
    const view cut = { other->lo % stride, other->ndim, other->stride, other->extent };
    return at >= row && at < row + wide->extent[0] && overlap(&wide_in, &cut);
}

static bool cover(const view *const a, const view *const b)
{
    if (a->ndim == 1) return a->lo <= b->lo && b->lo + span(b) <= a->lo + a->extent[0];
    if (b->ndim == 1 || a->stride[0] != b->stride[0]) return false;
    const uint64_t stride = a->stride[0];
    if (!rows_fit(a, stride) || !rows_fit(b, stride)) return false;
    const uint64_t ra = a->lo / stride, rb = b->lo / stride;
    const view ia = inner_of(a, stride), ib = inner_of(b, stride);
    return ra <= rb && rb + b->extent[0] <= ra + a->extent[0] && cover(&ia, &ib);
}

bool ech_box_overlaps(const ech_box *const a, const ech_box *const b)
{
    if (a->hi <= b->lo || b->hi <= a->lo) return false;
    if (a->ndim == 1 && b->ndim == 1) return true;
    static const uint64_t one = 1;
    const uint64_t len_a = a->hi - a->lo, len_b = b->hi - b->lo;
    const view va =
        a->ndim ? (view){ a->lo, a->ndim, a->stride, a->extent } : (view){ a->lo, 1, &one, &len_a };
    const view vb =
        b->ndim ? (view){ b->lo, b->ndim, b->stride, b->extent } : (view){ b->lo, 1, &one, &len_b };
    return overlap(&va, &vb);
}

bool ech_box_covers(const ech_box *const a, const ech_box *const b)
{
    if (a->ndim == 0 || b->lo < a->lo || b->hi > a->hi) return false;
    if (a->ndim == 1) return true;
    if (b->ndim == 0) return false;
    const view va = { a->lo, a->ndim, a->stride, a->extent };
    const view vb = { b->lo, b->ndim, b->stride, b->extent };
    return cover(&va, &vb);
}

/*
 * Puts the dimensions of a checked view into the box, outermost first: those of extent 1 say
 * nothing, and a dimension whose stride is exactly the span of the next one continues it.
 */
static void canonical(const ech_tensor *const t, const uint64_t elem, ech_box *const box)
{
    uint64_t stride[ECH_MAX_DIMS + 1], extent[ECH_MAX_DIMS + 1];
    uint32_t n = 0; /* innermost first here */
    stride[n] = 1;
    extent[n++] = elem;
    for (uint32_t i = t->ndim; i-- > 0;) {
        if (t->shape[i] == 1) continue;
        const uint64_t s = t->strides[i] * elem;
        uint64_t inside = 1;
        for (uint32_t k = 0; k < n; k++)
            inside += (extent[k] - 1) * stride[k];
        if (s < inside) return; /* rows interleave: ndim stays 0, the interval is all we know */
        if (s == stride[n - 1] * extent[n - 1]) {
            extent[n - 1] *= t->shape[i];
            continue;
        }
        stride[n] = s;
        extent[n++] = t->shape[i];
    }
    for (uint32_t i = 0; i < n; i++) {
        box->stride[i] = stride[n - 1 - i];
        box->extent[i] = extent[n - 1 - i];
    }
    box->ndim = n;
}

/* The common case, without a loop over merged dimensions: row-major without gaps. */
static bool is_dense(const ech_tensor *const t)
{
    uint64_t expect = 1;
    for (uint32_t i = t->ndim; i-- > 0;) {
        if (t->strides[i] != expect && t->shape[i] != 1) return false;
        expect *= t->shape[i];
    }
    return true;
}

/* Bytes from the first element to the end of the last; false when a field makes no sense. */
static bool view_span(const ech_tensor *const t, const uint64_t elem, uint64_t *const ret_bytes)
{
    uint64_t last = 0; /* elements from the first to the last */
    for (uint32_t i = 0; i < t->ndim; i++) {
        uint64_t step;
        if (t->shape[i] == 0 || __builtin_mul_overflow(t->shape[i] - 1, t->strides[i], &step) ||
            __builtin_add_overflow(last, step, &last))
            return false;
    }
    return !__builtin_add_overflow(last, UINT64_C(1), &last) &&
           !__builtin_mul_overflow(last, elem, ret_bytes);
}

ech_status ech_box_from(const ech_tensor *const t, const uint64_t buf_bytes, const char *const what,
                        ech_box *const ret_box, ech_error *const err)
{
    const uint64_t elem = ech_dtype_bytes((ech_dtype)t->dtype);
    if (elem == 0) return ech_fail(err, ECH_EINVAL, "%s: dtype %u is not one", what, t->dtype);
    if (t->ndim == 0 || t->ndim > ECH_MAX_DIMS)
        return ech_fail(err, ECH_EINVAL, "%s: ndim is %u, must be 1 to %d", what, t->ndim,
                        ECH_MAX_DIMS);
    uint64_t bytes = 0, end = 0;
    if (!view_span(t, elem, &bytes) || __builtin_add_overflow(t->offset, bytes, &end))
        return ech_fail(err, ECH_EINVAL, "%s: shape has a 0 or its size overflows", what);
    if (end > buf_bytes)
        return ech_fail(err, ECH_EINVAL,
                        "%s: view of bytes %llu to %llu exceeds the buffer's nbytes %llu", what,
                        (unsigned long long)t->offset, (unsigned long long)end,
                        (unsigned long long)buf_bytes);
    ret_box->lo = t->offset;
    ret_box->hi = end;
    ret_box->ndim = 0;
    if (is_dense(t)) {
        ret_box->ndim = 1;
        ret_box->stride[0] = 1;
        ret_box->extent[0] = bytes;
    } else {
        canonical(t, elem, ret_box);
    }
    return ECH_OK;
}
