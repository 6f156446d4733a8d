/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pipeline over two chips and a sub child: for each block of numbers, chip 0 squares it into ring
 * memory, chip 1 adds one in place, and the sub child adds the block to a total. Blocks are
 * independent, so the chips work on different blocks at the same time; the order inside a block
 * follows from the tags alone.
 *
 *     numbers[b] --INPUT--> square (chip 0) --OUTPUT--> block --INOUT--> add_one (chip 1)
 *                                                         |
 *                                                         +--INPUT--> sum (sub) --INOUT--> total
 */
#include <echelon/worker.h>

#include <stdio.h>

#define N_BLOCKS 64
#define BLOCK    1024

static ech_status square(ech_task *task, ech_error *err)
{
    const float *in = ech_task_tensor_at(task, 0)->ptr; /* [BLOCK] */
    float *out = ech_task_tensor_at(task, 1)->ptr;      /* [BLOCK] */
    (void)err;
    for (int i = 0; i < BLOCK; i++)
        out[i] = in[i] * in[i];
    return ECH_OK;
}

static ech_status add_one(ech_task *task, ech_error *err)
{
    float *x = ech_task_tensor_at(task, 0)->ptr; /* [BLOCK] */
    (void)err;
    for (int i = 0; i < BLOCK; i++)
        x[i] += 1;
    return ECH_OK;
}

static ech_status sum(ech_task *task, ech_error *err)
{
    const float *x = ech_task_tensor_at(task, 0)->ptr; /* [BLOCK] */
    double *total = ech_task_tensor_at(task, 1)->ptr;  /* [1] */
    (void)err;
    for (int i = 0; i < BLOCK; i++)
        *total += x[i];
    return ECH_OK;
}

struct pipeline {
    ech_callable square, add_one, sum;
    ech_buffer numbers, total;
    ech_args args;
};

/* One block: three tasks in a scope of their own, which gives the ring memory back. */
static ech_status block(ech_orch *orch, struct pipeline *p, uint64_t b, ech_error *err)
{
    const uint64_t n = BLOCK, one = 1;
    const ech_tensor in = ech_tensor_view(p->numbers, b * BLOCK * 4, ECH_DTYPE_F32, 1, &n);
    const ech_tensor total = ech_tensor_view(p->total, 0, ECH_DTYPE_F64, 1, &one);
    ech_tensor squared = ech_tensor_unplaced(ECH_DTYPE_F32, 1, &n);
    ech_status rc = ech_scope_begin(orch, err);
    if (rc != ECH_OK) return rc;

    ech_args_clear(&p->args);
    ech_args_add(&p->args, ECH_INPUT, &in);
    ech_args_add(&p->args, ECH_OUTPUT, &squared);
    rc = ech_submit_next_level(orch, &p->square, &p->args, NULL, 0, err);
    if (rc != ECH_OK) return rc;
    squared = *ech_args_tensor(&p->args, 1); /* the ring has given it memory */

    ech_args_clear(&p->args);
    ech_args_add(&p->args, ECH_INOUT, &squared);
    rc = ech_submit_next_level(orch, &p->add_one, &p->args, NULL, 1, err);
    if (rc != ECH_OK) return rc;

    ech_args_clear(&p->args);
    ech_args_add(&p->args, ECH_INPUT, &squared);
    ech_args_add(&p->args, ECH_INOUT, &total);
    rc = ech_submit_sub(orch, &p->sum, &p->args, NULL, err);
    return rc == ECH_OK ? ech_scope_end(orch, err) : rc;
}

static ech_status graph(ech_orch *orch, void *arg, ech_error *err)
{
    ech_status rc = ECH_OK;
    for (uint64_t b = 0; b < N_BLOCKS && rc == ECH_OK; b++)
        rc = block(orch, arg, b, err);
    return rc;
}

static ech_status set_up(ech_worker *w, struct pipeline *p, ech_error *err)
{
    ech_status rc = ech_worker_buffer_create(w, "numbers", N_BLOCKS * BLOCK * sizeof(float),
                                             ECH_ACCESS_RW, &p->numbers, err);
    if (rc == ECH_OK)
        rc = ech_worker_buffer_create(w, "total", sizeof(double), ECH_ACCESS_RW, &p->total, err);
    if (rc == ECH_OK) rc = ech_worker_register_host(w, "square", square, &p->square, err);
    if (rc == ECH_OK) rc = ech_worker_register_host(w, "add_one", add_one, &p->add_one, err);
    if (rc == ECH_OK) rc = ech_worker_register_host(w, "sum", sum, &p->sum, err);
    return rc == ECH_OK ? ech_worker_init(w, err) : rc;
}

int main(void)
{
    static struct pipeline p;
    ech_error err = { .code = ECH_OK };
    ech_worker *w = NULL;
    ech_worker_options o = ech_worker_options_default();
    o.name = "pipeline";
    o.n_chips = 2; /* without a platform, so they run host functions */
    o.n_subs = 1;
    ech_status rc = ech_worker_create(&w, &o, &err);
    if (rc == ECH_OK) rc = set_up(w, &p, &err);
    if (rc == ECH_OK) {
        float *x = ech_worker_buffer_ptr(w, p.numbers);
        for (int i = 0; i < N_BLOCKS * BLOCK; i++)
            x[i] = (float)(i % 16);
        rc = ech_worker_run(w, graph, &p, &err);
    }
    const double total = rc == ECH_OK ? *(double *)ech_worker_buffer_ptr(w, p.total) : 0;
    if (rc == ECH_OK) printf("total %.0f over %d blocks\n", total, N_BLOCKS);
    const ech_status closed = ech_worker_close(&w, rc == ECH_OK ? &err : NULL);
    if (rc == ECH_OK && closed == ECH_OK) return total == 65536.0 * (1240.0 / 16 + 1) ? 0 : 1;
    fprintf(stderr, "pipeline: %s\n", err.text);
    return 1;
}
