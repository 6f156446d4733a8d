/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The commands of the program, in the order in which the help lists them. A command is a file
 * cmd_NAME.c that defines ech_cmd_NAME, and a line here.
 */
#ifndef ECH_CLI_COMMANDS_H
#define ECH_CLI_COMMANDS_H

#include "src/cli/options.h"

#define ECH_COMMAND_MAP(X)                                                                         \
    X(bench)                                                                                       \
    X(doctor)                                                                                      \
    X(inspect)                                                                                     \
    X(template)                                                                                    \
    X(tokenize)                                                                                    \
    X(generate)                                                                                    \
    X(chat)                                                                                        \
    X(embed)                                                                                       \
    X(serve)                                                                                       \
    X(perplexity)                                                                                  \
    X(kld)                                                                                         \
    X(pack)                                                                                        \
    X(cache)                                                                                       \
    X(version)                                                                                     \
    X(help)

#define X(name) extern const ech_command ech_cmd_##name;
ECH_COMMAND_MAP(X)
#undef X

/* The command called name, NULL when there is none. */
const ech_command *ech_command_find(const char *name);

#endif
