/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file of options; see config.h. Runs once, on the main thread, before getopt.
 *
 * Why a reader before getopt: values from a file must be overwritten by flags, but --config is
 * itself a flag; so it is looked for first, by hand. Errors exit with 2 and name the line.
 */
#include "src/cli/config.h"

#include <errno.h>
#include <ini.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct reading {
    const ech_command *cmd;
    char complaint[256]; /* about the first line that is wrong */
} reading;

/* Long names only. */
static const ech_option *find(const ech_command *const cmd, const char *const name)
{
    for (size_t i = 0; i < cmd->n_options; i++) {
        if (strcmp(cmd->options[i].name, name) == 0) return &cmd->options[i];
    }
    return NULL;
}

/* A flag that the command line can only set can be left unset here. */
static const char *set_flag(const ech_option *const o, const char *const value)
{
    if (strcmp(value, "false") == 0) return NULL;
    return strcmp(value, "true") == 0 ? ech_option_set(o, NULL) : "must be true or false";
}

static const char *set(const ech_option *const o, const char *const value)
{
    if (o->kind == ECH_OPT_FLAG || o->kind == ECH_OPT_NO_FLAG) return set_flag(o, value);
    /* Strings are kept as pointers, as those of argv are: for as long as the program runs. */
    char *const copy = strdup(value);
    const char *const why = copy != NULL ? ech_option_set(o, copy) : "does not fit in memory";
    const bool is_kept = o->kind == ECH_OPT_STRING || o->kind == ECH_OPT_STRINGS;
    if (why != NULL || !is_kept) free(copy);
    return why;
}

/*
 * inih's callback: 0 is an error of this line. Sections of other commands are passed over, so
 * that one file can serve several. The first complaint is kept; inih counts the lines.
 */
static int on_line(void *const user, const char *const section, const char *const name,
                   const char *const value)
{
    reading *const r = user;
    if (section[0] != '\0' && strcmp(section, r->cmd->name) != 0) return 1;
    const ech_option *const o = find(r->cmd, name);
    const char *const why = o == NULL || strcmp(name, "config") == 0
                                ? "is no option that can stand here"
                                : set(o, value);
    if (why == NULL) return 1;
    if (r->complaint[0] == '\0')
        (void)snprintf(r->complaint, sizeof r->complaint, "%s = %.60s %s", name, value, why);
    return 0;
}

/*
 * What --config says, in either spelling; the last one counts, as with getopt. The variable is
 * the default, the flag wins. "--" ends the options.
 */
static const char *path_of(const int argc, char **const argv)
{
    const char *path = getenv("ECHELON_CONFIG");
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strncmp(argv[i], "--config=", 9) == 0) {
            path = argv[i] + 9;
        } else if (strcmp(argv[i], "--config") == 0 && i + 1 < argc) {
            path = argv[i + 1];
        }
    }
    return path;
}

int ech_config_read(const ech_command *const cmd, const int argc, char **const argv)
{
    const char *const path = find(cmd, "config") != NULL ? path_of(argc, argv) : NULL;
    if (path == NULL) return ECH_EXIT_OK;
    reading r = { .cmd = cmd };
    const int line = ini_parse(path, on_line, &r);
    if (line < 0) return ech_usage_error("reading --config %s: %s", path, strerror(errno));
    if (line > 0)
        return ech_usage_error("reading --config %s, line %d: %s", path, line,
                               r.complaint[0] != '\0' ? r.complaint : "it must be NAME = VALUE");
    return ECH_EXIT_OK;
}
