/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How fast a model's files are packed, from the page cache, without worker or disk:
 *
 *     bench_pack MODEL [QUANTIZE [THREADS [REPEATS]]]
 *
 * Prints wall time, CPU time of all threads, and bytes of source a second of either. Not a test.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "src/base/clock.h"
#include "src/base/os/shm.h"
#include "src/chip/exec.h"
#include "src/model/model.h"

static void must(const ech_status rc, const ech_error *const err)
{
    if (rc == ECH_OK) return;
    fprintf(stderr, "bench_pack: %s\n", err->text);
    exit(1);
}

static double cpu_s(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void pack_once(const ech_model *const model, ech_exec *const exec, const ech_buf *const pack,
                      const uint64_t image_bytes)
{
    ech_error err;
    ech_exec_tensor tensors[256];
    const uint32_t n = ech_model_n_sources(model);
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < n; i++) {
        void *ptr;
        uint64_t len;
        must(ech_os_file_map(ech_model_source_at(model, i).path, &ptr, &len, &err), &err);
        tensors[i] = (ech_exec_tensor){ ptr, len };
        bytes += len;
    }
    must(ech_os_shm_map("image", image_bytes, true, &tensors[n].ptr, &err), &err);
    tensors[n].bytes = image_bytes;
    ech_model_image_begin(model, tensors[n].ptr);
    const ech_exec_args args = { .tensors = tensors, .n_tensors = n + 1 };
    const int64_t begin = ech_now_ns();
    const double cpu = cpu_s();
    must(ech_exec_run(exec, pack->data, pack->len, &args, &err), &err);
    const double s = (double)(ech_now_ns() - begin) / ECH_NS_PER_S, c = cpu_s() - cpu;
    printf("%.2f GB of source, image %.2f GB: %.2f s wall, %.2f GB/s; %.2f s CPU, %.2f GB/s of a "
           "core\n",
           (double)bytes / 1e9, (double)image_bytes / 1e9, s, (double)bytes / 1e9 / s, c,
           (double)bytes / 1e9 / c);
    for (uint32_t i = 0; i <= n; i++)
        (void)munmap(tensors[i].ptr, tensors[i].bytes);
}

int main(const int argc, char **const argv)
{
    ech_error err;
    ech_model *model = NULL;
    ech_model_options mo = { .struct_size = sizeof mo };
    if (argc < 2) {
        fprintf(stderr, "usage: bench_pack MODEL [QUANTIZE [THREADS [REPEATS]]]\n");
        return 2;
    }
    if (argc > 2) must(ech_quantize_parse(argv[2], &mo.quantize, &err), &err);
    must(ech_model_open_with(&model, argv[1], &mo, &err), &err);
    ech_buf pack = { 0 };
    must(ech_model_pack_program(model, &pack, &err), &err);
    ech_exec *exec = NULL;
    const ech_exec_options eo = { .n_threads = argc > 3 ? (uint32_t)atoi(argv[3]) : 2 };
    must(ech_exec_create(&exec, &eo, &err), &err);
    must(ech_exec_load(exec, pack.data, pack.len, &err), &err);
    ech_model_info info;
    ech_model_get_info(model, &info);
    for (int i = argc > 4 ? atoi(argv[4]) : 3; i > 0; i--)
        pack_once(model, exec, &pack, info.packed_bytes);
    ech_buf_fini(&pack);
    ech_exec_destroy(&exec);
    ech_model_close(&model);
    return 0;
}
