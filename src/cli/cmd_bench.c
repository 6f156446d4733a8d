/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `echelon bench NAME`: finds the benchmark and runs it as a command of its own. Whatever is no
 * name is a model, or the options of its benchmark: `echelon bench MODEL` is `echelon bench model
 * MODEL`.
 */
#include <stdio.h>
#include <string.h>

#include "src/cli/bench.h"
#include "src/cli/commands.h"

static const ech_command *const BENCHES[] = {
#define X(name) &ech_bench_##name,
    ECH_BENCH_MAP(X)
#undef X
};

/* "bench serve" → "serve" */
static const char *name_of(const ech_command *const cmd)
{
    return cmd->name + strlen("bench ");
}

static void print_list(FILE *const out)
{
    (void)fprintf(out,
                  "usage: echelon bench MODEL [OPTIONS]\n       echelon bench NAME [OPTIONS]\n\n");
    for (size_t i = 0; i < sizeof BENCHES / sizeof BENCHES[0]; i++) {
        (void)fprintf(out, "  %-12s %s\n", name_of(BENCHES[i]), BENCHES[i]->summary);
    }
}

static int run(const int argc, char **const argv)
{
    if (argc == 0 || strcmp(argv[0], "--help") == 0 || strcmp(argv[0], "-h") == 0) {
        print_list(argc == 0 ? stderr : stdout);
        return argc == 0 ? ECH_EXIT_USAGE : ECH_EXIT_OK;
    }
    for (size_t i = 0; i < sizeof BENCHES / sizeof BENCHES[0]; i++) {
        if (strcmp(name_of(BENCHES[i]), argv[0]) == 0)
            return ech_command_main(BENCHES[i], argc, argv);
    }
    /* argv[-1] is the word "bench". */
    return ech_command_main(&ech_bench_model, argc + 1, argv - 1);
}

const ech_command ech_cmd_bench = {
    "bench",
    "MODEL|NAME",
    "measure: a model, the runtime, a server",
    "echelon bench models/tale -p 512 -n 128\n"
    "echelon bench serve --url http://127.0.0.1:8080/v1",
    NULL,
    0,
    run,
    .is_group = true,
};
