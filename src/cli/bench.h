/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The benchmarks behind `echelon bench NAME`, each a command of its own in cmd_bench_NAME.c.
 */
#ifndef ECH_CLI_BENCH_H
#define ECH_CLI_BENCH_H

#include "src/cli/options.h"

/* A benchmark is a file cmd_bench_NAME.c that defines ech_bench_NAME, and a line here. */
#define ECH_BENCH_MAP(X) X(model) X(runtime) X(serve)

#define X(name)          extern const ech_command ech_bench_##name;
ECH_BENCH_MAP(X)
#undef X

#endif
