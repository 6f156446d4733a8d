/* SPDX-License-Identifier: Apache-2.0 */
/* `echelon bench NAME`: finds the benchmark and runs it as a command of its own. */
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
    (void)fprintf(out, "usage: echelon bench NAME [OPTIONS]\n\n");
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
    return ech_usage_error("there is no benchmark '%s'; 'echelon bench' lists them", argv[0]);
}

const ech_command ech_cmd_bench = {
    "bench",
    "NAME",
    "measure: the runtime, a model, a server",
    "echelon bench serve --url http://127.0.0.1:8080/v1",
    NULL,
    0,
    run,
    .is_group = true,
};
