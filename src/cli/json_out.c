/* SPDX-License-Identifier: Apache-2.0 */
/* See json_out.h. */
#include "src/cli/json_out.h"

#include <stdio.h>
#include <stdlib.h>

#include "src/cli/commands.h"

int ech_print_json(json_t *const root, const char *const what)
{
    char *const text = root != NULL ? json_dumps(root, JSON_INDENT(2)) : NULL;
    json_decref(root);
    if (text == NULL) {
        (void)fprintf(stderr, "echelon: printing %s: out of memory, or a name that is not UTF-8\n",
                      what);
        return ECH_EXIT_FAILED;
    }
    (void)puts(text);
    free(text);
    return ECH_EXIT_OK;
}
