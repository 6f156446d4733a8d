/* SPDX-License-Identifier: Apache-2.0 */
/* `echelon version`: which build this is. */
#include <stdio.h>

#include "src/cli/commands.h"

static bool as_json;

static int run(const int argc, char **const argv)
{
    if (argc > 0) return ech_usage_error("version takes no '%s'", argv[0]);
    (void)printf(as_json ? "{\"version\": \"%s\"}\n" : "echelon %s\n", ECH_VERSION);
    return ECH_EXIT_OK;
}

static const ech_option OPTIONS[] = {
    { "json", 0, ECH_OPT_FLAG, &as_json, NULL, "print one JSON object", 0, 0, NULL },
};

const ech_command ech_cmd_version = {
    "version",
    "",
    "the version of this program",
    "echelon version",
    OPTIONS,
    sizeof OPTIONS / sizeof OPTIONS[0],
    run,
};
