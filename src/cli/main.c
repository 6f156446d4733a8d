/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The program: finds the command and runs it. Only code in this folder may exit. Exit codes: 0,
 * 1 failed, 2 wrong usage.
 *
 * More precisely, an error of the library exits with the code that its status has in the table
 * of status.h: 2 where an argument was wrong, else 1. What was asked for goes to standard
 * output, everything else to standard error, in lines that begin with "echelon: ". Main thread.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "src/base/os/process.h"
#include "src/cli/commands.h"

/* From the one list, so that help, completion and the program can't name different ones. */
static const ech_command *const COMMANDS[] = {
#define X(name) &ech_cmd_##name,
    ECH_COMMAND_MAP(X)
#undef X
};

/* Exact names only: an abbreviation would change its meaning with the next command. */
const ech_command *ech_command_find(const char *const name)
{
    for (size_t i = 0; i < sizeof COMMANDS / sizeof COMMANDS[0]; i++) {
        if (strcmp(COMMANDS[i]->name, name) == 0) return COMMANDS[i];
    }
    return NULL;
}

static void print_overview(FILE *const out)
{
    (void)fprintf(out, "usage: echelon COMMAND [OPTIONS]\n\n");
    for (size_t i = 0; i < sizeof COMMANDS / sizeof COMMANDS[0]; i++) {
        (void)fprintf(out, "  %-12s %s\n", COMMANDS[i]->name, COMMANDS[i]->summary);
    }
    (void)fprintf(out,
                  "\n'echelon help COMMAND' lists a command's options and shows an example.\n");
}

static bool print_man;

/* Help that was asked for goes to standard output and is a success. */
static int run_help(const int argc, char **const argv)
{
    if (argc == 0) {
        print_overview(stdout);
        return ECH_EXIT_OK;
    }
    if (argc > 1) return ech_usage_error("help takes one COMMAND, not also '%s'", argv[1]);
    const ech_command *const cmd = ech_command_find(argv[0]);
    if (cmd == NULL)
        return ech_usage_error("there is no command '%s'; 'echelon help' lists them", argv[0]);
    if (print_man) {
        ech_command_man(cmd);
    } else {
        ech_command_help(cmd);
    }
    return ECH_EXIT_OK;
}

static const ech_option HELP_OPTIONS[] = {
    { "man", 0, ECH_OPT_FLAG, &print_man, NULL, "print the page in man(7) format", 0, 0, NULL },
};

const ech_command ech_cmd_help = {
    "help",
    "[COMMAND]",
    "what the commands are, or what one of them takes",
    "echelon help generate",
    HELP_OPTIONS,
    sizeof HELP_OPTIONS / sizeof HELP_OPTIONS[0],
    run_help,
};

/*
 * Without a command the overview is an answer to a mistake: standard error, code 2. -h and -V
 * are there because everybody tries them.
 */
static int run_command(const int argc, char **const argv)
{
    if (argc < 2) {
        print_overview(stderr);
        return ECH_EXIT_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) name = "help";
    if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0) name = "version";
    const ech_command *const cmd = ech_command_find(name);
    if (cmd == NULL)
        return ech_usage_error("there is no command '%s'; 'echelon help' lists them", name);
    return ech_command_main(cmd, argc - 1, argv + 1);
}

/*
 * An answer that did not reach standard output is a failure, whatever the command was. Full
 * disks and closed pipes show at the last flush only. An earlier failure keeps its own code.
 */
static int end_output(const int code)
{
    errno = 0;
    if (fflush(stdout) == 0 && ferror(stdout) == 0) return code;
    (void)fprintf(stderr, "echelon: writing to standard output failed%s%s\n",
                  errno != 0 ? ": " : "", errno != 0 ? strerror(errno) : "");
    return code == ECH_EXIT_OK ? ECH_EXIT_FAILED : code;
}

/*
 * Descriptors 0 to 2 are there first: a file that was opened as 1 by chance would get the
 * output. A file that `ulimit -f` lets grow no further is an error of the call, and said.
 */
int main(const int argc, char **const argv)
{
    ech_os_fill_stdio();
    (void)signal(SIGXFSZ, SIG_IGN);
    return end_output(run_command(argc, argv));
}
