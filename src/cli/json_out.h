/* SPDX-License-Identifier: Apache-2.0 */
/* What --json prints: one way for every command. Main thread. */
#ifndef ECH_CLI_JSON_OUT_H
#define ECH_CLI_JSON_OUT_H

#include <jansson.h>

/*
 * Prints root, indented, and gives it up. NULL is what jansson makes of a name that is not UTF-8,
 * or of memory that is short: a line about `what` then, and a failed exit code.
 */
int ech_print_json(json_t *root, const char *what);

#endif
