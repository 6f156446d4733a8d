/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A command's options from a file: lines `name = value` under the options' own names, in no section
 * or in one of the command's name; flags take true or false, '#' and ';' begin a comment.
 *
 *     # /etc/echelon/serve.ini
 *     port = 8000
 *     api-key-file = /etc/echelon/keys
 *     strict = true
 */
#ifndef ECH_CLI_CONFIG_H
#define ECH_CLI_CONFIG_H

#include "src/cli/options.h"

/*
 * Reads the file that --config or ECHELON_CONFIG names, if the command has that option and one is
 * named. Before environment and flags, which overwrite what it sets. Returns an exit code.
 */
int ech_config_read(const ech_command *cmd, int argc, char **argv);

#endif
